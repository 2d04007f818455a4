"""Commands about single tables and columns: the same at a project and over the server of one that is alike."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from remote_world import PROJECT, Twins, World, alike

from instep.backends.http.client import Client
from instep.backends.http.credentials import ApiKeySecret
from instep.backends.remote_jobs import Follower, RemoteJobs
from instep.errors import Conflict
from instep.sync.progress import Silent

pytestmark = pytest.mark.drawn(5)

JSON = ("--output", "json")
WARES = """
    create table ware (sku int not null, name text, at timestamp);
    insert into ware values (1, 'a', '2026-03-01 00:00:00'), (2, 'b', '2026-03-02 00:00:00');
"""


def loaded(twins: Twins) -> None:
    twins.sql(WARES)
    twins.both("apply", "--yes", *JSON)
    synced(twins)


def synced(twins: Twins) -> None:
    """Of several tables a sync tells in the order in which they came."""
    for run in (twins.near.here, twins.far.there):
        assert run("sync").code == 0


@pytest.mark.slow
def test_a_key_is_set(twins: Twins) -> None:
    loaded(twins)
    words = ("table", "set-key", "main.ware", "sku")
    for more in ((), JSON, ("--rebuild", "--dry-run"), ("--rekey", "--dry-run", *JSON)):
        twins.both(*words, *more)
    for wrong in (("main.wear", "sku", "--rekey"), ("main.ware", "skU", "--rekey"), ("main.ware", "sku,sku")):
        twins.both("table", "set-key", *wrong, code=1)
    twins.both(*words, "--clear", code=3)
    twins.both(*words, "--rekey")
    with twins.far.store() as store:
        job = store.jobs.find(connection="shop")[0]
        assert (job.kind, job.who.partition(" ")[0]) == ("set_key", "canary")
        assert job.options == {"table": "main.ware", "key": ["sku"]}
        asked = [one.detail for one in store.audit.page() if one.action == "connection.set_key"]
        assert [(one["key"], one.get("preview", False)) for one in asked[:2]] == [(["sku"], False), (["sku"], True)]
    for world in (twins.near, twins.far):
        assert world.here("table", "show", "main.ware", *JSON).json["key"] == ["sku"]
    twins.sql("insert into ware values (1, 'again', null)")
    twins.both(*words, "--rekey", code=3)


@pytest.mark.slow
def test_a_table_is_emptied_or_kept_for_its_key(twins: Twins) -> None:
    loaded(twins)
    allowed = ("--allow-destructive", "main.*")
    _, there = twins.both("table", "set-key", "main.ware", "sku,at", "--clear", *allowed, *JSON)
    assert (there.json["applied"], there.json["copy"]) == (True, None)
    synced(twins)
    assert "the old table is kept as" in twins.both("table", "set-key", "main.ware", "sku", "--rebuild")[1].out


@pytest.mark.slow
def test_a_cursor_is_set(twins: Twins) -> None:
    loaded(twins)
    words = ("table", "set-cursor", "main.ware")
    for more in (("sku", "--dry-run"), ("sku", "--from", "2", "--dry-run", *JSON), ("--none", "--dry-run", *JSON)):
        twins.both(*words, *more)
    for wrong in ((), ("name",), ("sku", "--from", "x"), ("skU",), ("--none", "--from", "1")):
        twins.both(*words, *wrong, code=1)
    twins.both(*words, "sku", "--from", "2")
    twins.both(*words, "--none", *JSON)
    twins.sql("insert into ware values (3, 'c', null)")
    twins.both(*words, "at", code=3)


NAMED = PROJECT.replace("{policy: careful}", "{policy: careful, tables: {main.ware: {key: [sku], cursor: at}}}")


@pytest.mark.parametrize("twins", [NAMED], indirect=True)
def test_what_the_project_file_names_is_changed_there(twins: Twins) -> None:
    loaded(twins)
    twins.both("table", "set-key", "main.ware", "sku,at", "--rekey", code=3)
    twins.both("table", "set-cursor", "main.ware", "--none", code=3)


ICEBERG = PROJECT.replace("{type: duckdb, path: lake.duckdb}", "{type: iceberg, warehouse: lake}")


def works(world: World) -> RemoteJobs:
    client = Client(world.url, ApiKeySecret(world.key), "0.1.0")
    return RemoteJobs(client, Follower(client, lambda: nullcontext(Silent()), print), print)


def snapshots(twins: Twins) -> list[tuple[str, str]]:
    """Those of the table, newest first: as the project knows them, and as the server tells of them."""
    found = [run("restore", "main.item", "--list", *JSON) for run in (twins.near.here, twins.far.there)]
    near, far = (one.json["snapshots"] for one in found)
    told = [[(s["rows"], s["current"], bool(s["run"]), s["why_not"]) for s in side] for side in (near, far)]
    assert told[0] == told[1]
    return [(here["id"], there["id"]) for here, there in zip(near, far, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("twins", [ICEBERG], indirect=True)
def test_rows_are_put_back(twins: Twins) -> None:
    twins.grow()
    twins.both("restore", "main.item", "--at", "2020-01-01", "--dry-run", code=1)
    twins.both("restore", "main.items", "--list", code=1)
    now, before, *_ = snapshots(twins)
    allowed = ("--yes", "--allow-destructive", "main.*")
    cases = ((now, ("--dry-run",), 3), (before, ("--dry-run",), 0), (before, ("--yes",), 3), (before, allowed, 0))
    for ids, more, code in cases:
        sides = zip((twins.near.here, twins.far.there), ids, strict=True)
        said = [run("restore", "main.item", "--snapshot", id, *more) for run, id in sides]
        assert [one.code for one in said] == [code, code], said
        told = [one.out.replace(id, "ID") for one, id in zip(said, ids, strict=True)]
        assert alike(told[0]) == alike(told[1])
    with twins.far.store() as store:
        job = store.jobs.find(connection="shop")[0]
        assert (job.kind, job.result["rows_then"], job.run) == ("restore", 3, job.result["run"])
        last = next(e for e in store.events.latest(connection="shop", limit=20) if e.type == "table.restored")
        assert last.data["who"].startswith("canary")
    moved = {"table": "main.item", "snapshot": now[1], "base": now[1], "allow": ["*"]}
    with pytest.raises(Conflict, match="has changed since it was shown"):
        works(twins.far).done("shop", "restore", moved)


def test_what_keeps_no_snapshots_is_refused(twins: Twins) -> None:
    twins.both("apply", "--yes", *JSON)
    twins.both("restore", "main.item", "--list", code=1)
    twins.both("restore", "main.item", "--snapshot", "1", "--dry-run", code=1)


VIEWS = PROJECT.replace("{policy: careful}", "{policy: careful, downstream: {sql: [views]}}")


@pytest.mark.slow
@pytest.mark.parametrize("twins", [VIEWS], indirect=True)
def test_what_breaks_downstream(twins: Twins, tmp_path: Path) -> None:
    for folder in (twins.near.folder, twins.far.folder, tmp_path):
        folder.joinpath("views").mkdir()
        folder.joinpath("views", "names.sql").write_text("select id, name from shop.item")
    twins.both("apply", "--yes", *JSON)
    twins.both("sync", *JSON)
    twins.both("impact")
    twins.sql("alter table item add column price numeric; alter table item drop column name")
    own = ("--sql", str(tmp_path / "views"))
    for more in ((), JSON, own, (*own, "--dialect", "duckdb", *JSON)):
        _, there = twins.both("impact", *more)
    assert [(m["name"], m["verdict"]) for m in there.json["models"]] == [("names", "silent")]
    for wrong in (("--change", "c-none"), ("--sql", str(tmp_path / "none")), (*own, "--dialect", "klingon")):
        twins.both("impact", *wrong, code=1)
    near, far = twins.ids(column="name")
    for run, id in ((twins.near.here, near), (twins.far.there, far)):
        found = run("impact", *own, "--change", id[:6], *JSON).json
        assert [(c["id"], c["silent"]) for c in found["changes"]] == [(id, ["names"])]


def test_without_models_impact_says_what_to_name(twins: Twins) -> None:
    twins.both("impact", code=1)


SALTED = PROJECT.replace("careful}}", "careful, salt: '${env:INSTEP_SALT}', exclude: {tables: [main.old]}}}")
PEOPLE = """
    create table person (id integer primary key, name text, email text);
    insert into person values (1, 'ann', 'ann@example.org');
    create table old (id integer primary key);
"""


TURNED = (
    ("off", "main.person.name", "main.item"), ("hash", "--match", "*mail*", "--dry-run"),
    ("unhash", "main.person.email"),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("twins", [SALTED], indirect=True)
def test_what_is_read_is_listed_and_switched(twins: Twins) -> None:
    twins.both("selection", "show")
    twins.both("selection", "off", "main.person", code=1)
    twins.sql(PEOPLE)
    twins.both("apply", "--yes", *JSON)
    for more in ((), ("--all-columns",), ("shop", "--all-columns", *JSON)):
        twins.both("selection", "show", *more)
    for verb, *more in TURNED:
        twins.both("selection", verb, *more)
        twins.both("selection", verb, *more, *JSON)
    _, far = twins.both("selection", "hash", "--match", "re:.*[.]email", "main.person.name", *JSON)
    assert [one["changed"] for one in far.json["objects"]] == [True, True]
    twins.both("selection", "on", "main.item")
    twins.both("selection", "show", *JSON)
    with twins.far.store() as store:
        entry = store.audit.page()[0]
        assert (entry.action, entry.detail["turned"]) == ("connection.selection", ["main.item"])
        turned = [e for e in store.events.latest(connection="shop", limit=50) if e.type == "selection.changed"]
        assert {e.data["who"].partition(" ")[0] for e in turned} == {"canary"}


@pytest.mark.parametrize("twins", [SALTED], indirect=True)
def test_what_cannot_be_switched_is_refused_whole(twins: Twins) -> None:
    twins.sql(PEOPLE)
    twins.both("detect", *JSON)
    refused = [
        (("off", "main.person.name", "main.person.id"), 3), (("on", "main.old"), 3), (("hash", "main.person"), 1),
        (("off", "main.persons"), 1), (("off", "--match", "shop.*"), 1), (("off",), 1),
        (("off", "--match", "re:(a"), 1),
    ]  # fmt: skip
    for words, code in refused:
        twins.both("selection", *words, code=code)
    twins.both("selection", "show", *JSON)


def test_what_stands_at_the_destination(twins: Twins) -> None:
    """Loaded or not, with a table paused; rows are shown at the project alone, and none is kept at the server."""
    twins.sql(WARES)
    twins.both("tables")
    twins.both("detect", *JSON)
    twins.both("tables", *JSON)
    twins.both("apply", "--yes", *JSON)
    synced(twins)
    twins.both("pause", "--table", "main.ware", "--reason", "why", *JSON)
    for more in ((), JSON, ("main.item",), ("main.item", *JSON)):
        twins.both("tables", *more)
    twins.both("tables", "main.wares", code=1)
    here, there = (run("tables", "main.item", "--preview", "2") for run in (twins.near.here, twins.far.there))
    assert (here.code, there.code) == (0, 1)
    assert "pen" in here.out
    assert "rows do not pass through a server: `preview` works only in the project" in there.err
    assert "`instep query` reads rows there too" in there.err
    with twins.far.store() as store:
        kept = [job for job in store.jobs.find(connection="shop", limit=100) if job.kind == "tables"]
    assert kept
    assert not any("pen" in str((job.result, job.options)) for job in kept)


def test_a_worker_reads_no_row_whatever_a_job_says(world: World) -> None:
    world.here("sync")
    with world.store() as store:
        job, _ = store.jobs.enqueue("shop", "tables", options={"table": "main.item", "preview": 2})
    [done] = [one for one in world.work() if one.id == job.id]
    assert done.result.get("preview") is None
