"""Commands that change something: done at a project, and by a worker over the server of one that is alike; what is
printed and what comes of it are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from remote_world import PROJECT, Twins, World, alike

pytestmark = pytest.mark.drawn(5)

JSON = ("--output", "json")
CAREFUL = PROJECT.replace("{policy: careful}", "{policy: careful, salt: '${env:INSTEP_SALT}'}")
FLEET = """\
engine: local
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: duckdb, path: lake.duckdb}}
policies: {careful: {preset: approve}}
connections:
  shop: {policy: careful, tags: [all], namespace: shop}
  eu: {policy: careful, tags: [all], namespace: eu}
"""


def begun(twins: Twins, script: str = "alter table item add column price numeric") -> None:
    """Loaded, then changed at the source, and seen."""
    twins.both("apply", "--yes", *JSON)
    twins.both("sync", *JSON)
    twins.sql(script)
    twins.both("detect", *JSON)


def answered(twins: Twins, *words: str, column: str = "price", code: int = 0) -> None:
    """A command about the change of a column, by its id on each side."""
    near, far = twins.ids(column=column)
    here = twins.near.here(*(near if w == "ID" else w for w in words), *JSON)
    there = twins.far.there(*(far if w == "ID" else w for w in words), *JSON)
    assert (here.code, there.code) == (code, code), f"{words}\n{here}\n{there}"
    assert alike(here.json) == alike(there.json), words


@pytest.mark.slow
def test_a_plan_its_application_and_an_undo(twins: Twins) -> None:
    begun(twins)
    for more in ((), JSON, ("--ddl", "--all", "--sample", "0")):
        twins.both("plan", *more)
    twins.both("plan", "--exit-code", code=2)
    answered(twins, "changes", "approve", "ID")
    twins.both("apply", code=3)
    twins.both("apply", "--yes", *JSON)
    twins.both("apply", "--yes", *JSON)
    answered(twins, "undo", "ID", "--dry-run")
    answered(twins, "undo", "ID", "--yes")
    answered(twins, "undo", "ID", "--yes", code=5)


def test_an_undo_by_the_beginning_of_an_id_finds_the_whole_id(twins: Twins) -> None:
    begun(twins)
    answered(twins, "changes", "approve", "ID")
    twins.both("apply", "--yes", *JSON)
    near, far = twins.ids(column="price")
    for more in (("--dry-run",), ("--yes",)):
        here = twins.near.here("undo", near[:-2], "-c", "shop", *more, *JSON)
        there = twins.far.there("undo", far[:-2], "-c", "shop", *more, *JSON)
        assert (here.code, there.code) == (0, 0), f"{here}\n{there}"
        assert alike(here.json) == alike(there.json)
        assert there.json["changes"] == [far]
    with twins.far.store() as store:
        assert {job.options["what"] for job in store.jobs.find() if job.kind == "undo"} == {far}
    unknown = twins.far.there("undo", "c-none", "-c", "shop", "--yes")
    assert (unknown.code, "c-none" in unknown.err) == (1, True), unknown


def test_a_plan_file_is_applied_where_it_was_made(twins: Twins) -> None:
    twins.both("plan", "-o", str(twins.far.folder / "plan.json"), *JSON)
    file = twins.far.folder / "plan.json"
    assert json.loads(file.read_text())["job"].startswith("j-")
    applied = twins.far.there("apply", str(file), "--yes", *JSON)
    assert (applied.code, applied.json["version"]) == (0, 1)
    twins.near.here("plan", "-o", str(twins.near.folder / "plan.json"))
    refused = twins.far.there("apply", str(twins.near.folder / "plan.json"), "--yes")
    assert (refused.code, "not made by the server" in refused.err) == (1, True)
    assert twins.near.here("apply", str(twins.near.folder / "plan.json"), "--yes").code == 0


@pytest.mark.slow
def test_a_mapping_by_paths_and_by_its_proposal(twins: Twins) -> None:
    begun(twins, "alter table item add column title text; alter table item drop column name")
    twins.both("changes", "map", "main.item.nam", "main.item.title", code=1)
    twins.both("changes", "map", "main.item.id", "main.item.title", code=3)
    twins.both("changes", "map", "main.item.name", "main.item.title", *JSON)
    twins.both("schema", "show")


@pytest.mark.slow
@pytest.mark.parametrize("twins", [CAREFUL], indirect=True)
def test_an_approval_that_hashes(twins: Twins) -> None:
    begun(twins, "alter table item add column email text")
    answered(twins, "changes", "approve", "ID", "--hash", column="email")
    twins.both("sync", *JSON)
    for world in (twins.near, twins.far):
        shown = world.here("selection", "show", "--all-columns", *JSON).json["objects"]
        assert [one["hashed"] for one in shown if one["column"] == "email"] == [True]


@pytest.mark.slow
def test_a_backfill_and_its_end(twins: Twins) -> None:
    begun(twins, "alter table item add column price numeric; update item set price = 3")
    answered(twins, "changes", "approve", "ID")
    twins.both("sync", *JSON)
    twins.both("backfill", "main.item", "--column", "pric", code=1)
    for more in (("--dry-run",), ("--column", "price", "--dry-run"), ("--column", "price", "--dry-run", *JSON)):
        twins.both("backfill", "main.item", *more)
    twins.both("backfill", "main.item", "--cancel")
    for world in (twins.near, twins.far):
        with world.store() as store:
            store.backfills.request("shop", ("main", "item"), column="price")
            store.backfills.request("shop", ("main", "item"), column="name")
    twins.both("backfill", "main.item", "--column", "price", "--cancel", *JSON)
    twins.both("backfill", "main.item", "--cancel")
    twins.both("backfill", "main.item", "--column", "price", "--now", *JSON)
    twins.both("backfill", "main.item", *JSON)


def pages(world: World) -> list[Any]:
    """What is quarantined, asked for one by one."""
    found, cursor = list[Any](), ""
    while cursor is not None:
        parameters = urlencode({"limit": 1, **({"cursor": cursor} if cursor else {})})
        address = f"{world.url}/api/v1/connections/shop/quarantine?{parameters}"
        with urlopen(Request(address, headers={"Authorization": f"Bearer {world.key}"})) as answer:
            page = json.load(answer)
        found, cursor = [*found, *page["items"]], page["next_cursor"]
    return found


@pytest.mark.slow
def test_what_is_held(twins: Twins) -> None:
    twins.sql("alter table item add column size integer; insert into item values (3, 'cap', 'big'), (4, 'ink', 'wide')")
    twins.both("apply", "--yes", *JSON)
    twins.both("sync", *JSON)
    _, there = twins.both("quarantine", "list", *JSON)
    assert there.json["total"] == 2
    for more in (("--limit", "9"), ("--limit", "1"), ("main.item", "--column", "size"), ("--run", "r-"), ("--all",)):
        twins.both("quarantine", "list", *more, *JSON)
    entries = twins.far.there("quarantine", "list", "--limit", "9", *JSON).json["entries"]
    assert [one["id"] for one in pages(twins.far)] == [one["id"] for one in entries]
    for more in (("--dry-run",), ("main.item", "--column", "size", *JSON), ()):
        twins.both("quarantine", "replay", *more)
    twins.both("quarantine", "replay", "main.items", code=1)
    twins.both("quarantine", "discard", "main.item", code=3)
    for world, run in ((twins.near, twins.near.here), (twins.far, twins.far.there)):
        id = world.here("quarantine", "list", "--limit", "9", *JSON).json["entries"][0]["id"]
        assert run("quarantine", "discard", id[:6], "--yes", *JSON).json["ids"] == [id]
    _, there = twins.both("quarantine", "discard", "main.item", "--yes", *JSON)
    assert there.json["discarded"] == 1
    twins.both("quarantine", "list")
    for key, code in (('{"id": 4}', 3), ("{id: 4}", 1), ('{"id": [4]}', 1)):
        twins.both("quarantine", "discard", "main.item", "--key", key, *(("--yes",) if code == 1 else ()), code=code)
    for table, code in (("main.items", 1), ("q-1", 1)):
        twins.both("quarantine", "discard", table, "--key", '{"id": 4}', "--yes", code=code)
    for erased in (1, 0):
        _, there = twins.both("quarantine", "discard", "main.item", "--key", '{"id": 4}', "--yes", *JSON)
        assert there.json["erased"] == erased
    with twins.far.store() as store:
        job = store.jobs.find(connection="shop")[0]
        kept = json.dumps([job.options, job.result, [one.detail for one in store.audit.page()]])
        assert (job.kind, '"key"' in kept) == ("erase", False)
    twins.both("pause", *JSON)
    twins.both("quarantine", "replay", code=3)


@pytest.mark.slow
def test_a_comparison_of_both_sides(twins: Twins) -> None:
    twins.both("apply", "--yes", *JSON)
    twins.both("verify", code=1)
    twins.both("sync", *JSON)
    for more in ((), JSON, ("--table", "main.item", *JSON)):
        twins.both("verify", *more)
    twins.both("verify", "-t", "main.items", code=1)
    twins.both("pause", *JSON)
    twins.sql("update item set name = 'secret pen' where id = 2; insert into item values (7, 'cap')")
    here, there = twins.near.here("verify"), twins.far.there("verify")
    assert (here.code, there.code) == (1, 1)
    assert "differs (1 rows): key 2" in here.out
    assert [line.partition(": key")[0] for line in here.out.splitlines()] == there.out.splitlines()
    with twins.far.store() as store:
        assert store.jobs.find(connection="shop")[0].result["tables"][0]["differences"][1:] == [
            "differs (1 rows)", "missing (1 rows)",
        ]  # fmt: skip


@pytest.mark.slow
def test_tables_are_kept_in_order(twins: Twins) -> None:
    twins.both("apply", "--yes", *JSON)
    twins.both("sync", *JSON)
    for more in (("--dry-run",), ("--dry-run", *JSON), (), ("--table", "main.*", *JSON)):
        twins.both("maintain", *more)
    twins.both("maintain", "--table", "main.items", code=1)
    twins.both("pause", *JSON)
    for more in ((), JSON):
        twins.both("maintain", *more)


ICEBERG = PROJECT.replace("{type: duckdb, path: lake.duckdb}", "{type: iceberg, warehouse: lake}").replace(
    "{policy: careful}", "{policy: careful, maintain: {min_files: 2, after_sync: false}}"
)


@pytest.mark.slow
@pytest.mark.parametrize("twins", [ICEBERG], indirect=True)
def test_what_failed_at_a_table_is_told_by_both_sides(twins: Twins) -> None:
    twins.grow()
    for world in (twins.near, twins.far):
        for file in (world.folder / "lake").rglob("data/**/*.parquet"):
            file.unlink()
    near, far = twins.near.here("maintain", *JSON), twins.far.there("maintain", *JSON)
    assert (near.code, far.code) == (6, 6), (near, far)
    told = [[(t["table"], bool(t["error"])) for t in said.json["tables"]] for said in (near, far)]
    assert told[0] == told[1] == [("main.item", True)]


CASES = """\
- {change: column.removed, table: main.item, column: name, expect: review}
- {change: column.added, table: main.item, column: tag, expect: apply}
"""


WRONG = """\
- {change: key.removed, table: t.t, expect: apply}
- {change: column.widened, table: t.t, column: x, from: int64, to: int32, expect: apply}
"""


def test_policies(twins: Twins, tmp_path: Path) -> None:
    begun(twins)
    cases, wrong, strict = tmp_path / "cases.yml", tmp_path / "wrong.yml", tmp_path / "strict.yml"
    cases.write_text(CASES)
    wrong.write_text(WRONG)
    strict.write_text("preset: allow_all\nrules: [{on: [column.added], decide: ignore, match: ['main.*']}]\n")
    for more in ((), JSON):
        twins.both("policy", "show", *more)
        twins.both("policy", "explain", "main.item.price", "column.added", *more)
        twins.both("policy", "explain", "main.item.id", "column.retyped", "--from", "int64", "--to", "uuid", *more)
        twins.both("policy", "test", str(cases), *more, code=1)
        twins.both("policy", "simulate", str(strict), "--since", "2020-01-01", *more)
    twins.both("policy", "explain", "main.item.price", "column.lost", code=1)
    twins.both("policy", "test", str(wrong), code=1)


def test_the_detector(twins: Twins) -> None:
    twins.both("detect", *JSON)
    twins.both("detector", "enable")
    twins.both("detector", "set", "frequency=1800", code=5)
    twins.both("detector", "set", "frequenzy=1800", code=1)
    twins.both("detector", "set", "excluded_columns=a", code=1)
    found = twins.far.ok("detector", "status", *JSON).json["detector"]
    assert (found["state"], found["last"]["kind"], found["options"]) == ("scheduled", "detect", {})


def test_options_of_a_connection_that_the_server_keeps(twins: Twins) -> None:
    from instep.backends.http.client import Client
    from instep.backends.http.credentials import ApiKeySecret

    far, of = twins.far, ("--connection", "mine")
    spec = {"source": "db", "destination": "lake", "app_options": {"frequency": 21600}}
    Client(far.url, ApiKeySecret(far.key), "0.1.0").post("/connections", {"name": "mine", "spec": spec})
    far.ok("detector", "set", "frequency=1800", "unsync_deleted_tables=true", "excluded_tables=main.tmp", *of)
    found = far.ok("detector", "set", "excluded_columns=[note]", "-t", "main.item", *of, *JSON).json["detector"]
    assert found["frequency"] == 1800
    assert found["options"]["auto_unsync_deleted_tables"] is True
    assert found["options"]["excluded_external_table_names"] == ["main.tmp"]
    assert found["tables"] == {"main.item": {"excluded_external_column_names": ["note"]}}
    assert "main.item: excluded_external_column_names: note" in far.ok("detector", "status", "mine").out
    assert far.ok("detector", "set", "frequency=", *of, *JSON).json["detector"]["frequency"] == 3600
    assert far.there("detector", "set", "frequency=7", *of).code == 1


def test_what_somebody_else_has_changed_meanwhile_is_not_overwritten(twins: Twins) -> None:
    from instep.backends.http.client import Client
    from instep.backends.http.credentials import ApiKeySecret
    from instep.errors import Conflict

    client = Client(twins.far.url, ApiKeySecret(twins.far.key), "0.1.0")
    client.post("/connections", {"name": "mine", "spec": {"source": "db", "destination": "lake"}})
    _, tag = client.read("/connections/mine/settings")
    twins.far.ok("detector", "set", "frequency=1800", "--connection", "mine")
    with pytest.raises(Conflict, match="changed since it was read"):
        client.patch("/connections/mine/settings", {"spec": {"app_options": {"frequency": 21600}}}, tag)
    assert twins.far.ok("detector", "status", "mine", *JSON).json["detector"]["frequency"] == 1800


@pytest.mark.parametrize("twins", [FLEET], indirect=True)
def test_a_rollout_of_a_change_that_was_not_seen_yet(twins: Twins) -> None:
    """Sources are looked at before anything is drafted: the change is among what they show."""
    for name in ("shop", "eu"):
        twins.both("apply", name, "--yes", *JSON)
    twins.sql("create table refund (id integer primary key)")
    wanted = ("rollout", "create", "--approve", "table.added:main.refund", "--tag", "all")
    twins.both(*wanted, code=1)
    misspelt = (*wanted[:3], "table.added:main.refunt", *wanted[4:])
    for said in twins.both(*misspelt, "--detect", code=1):
        assert "(their sources were checked just now) did you mean table.added:main.refund?" in " ".join(
            said.err.split()
        )
    twins.both(*wanted, "--detect", "--dry-run", *JSON)


@pytest.mark.parametrize("twins", [FLEET], indirect=True)
def test_an_include_that_nothing_fits(twins: Twins) -> None:
    twins.write(FLEET.replace("shop: {", "shop: {include: {tables: [main.itme]}, ", 1))
    for words in (("detect", "shop"), ("plan", "shop"), ("sync", "shop")):
        here, there = twins.near.here(*words), twins.far.there(*words)
        assert (here.code, there.code) == (1, 1), (here, there)
        for said in (here, there):
            assert "'main.itme' in `include` of connection shop" in " ".join((said.out + said.err).split())


@pytest.mark.slow
@pytest.mark.parametrize("detects", [False, True])
@pytest.mark.parametrize("twins", [FLEET], indirect=True)
def test_a_rollout(twins: Twins, detects: bool) -> None:
    for name in ("shop", "eu"):
        twins.both("apply", name, "--yes", *JSON)
        twins.both("sync", name, *JSON)
    twins.sql("create table refund (id integer primary key)")
    looks = ("--detect",) if detects else ()
    if not detects:
        for name in ("shop", "eu"):
            twins.both("detect", name, *JSON)
    wanted = ("rollout", "create", "--on", "main.refund", "--tag", "all", "--waves", "1,rest")
    twins.both(*wanted, *looks, "--dry-run")
    twins.both(*wanted, "--dry-run", *JSON)
    twins.both("rollout", "create", "--on", "main.refund", "--preset", "approve", "--tag", "all", code=1)
    twins.both("rollout", "status")
    twins.both(*wanted, *JSON)
    twins.both("rollout", "advance", *JSON)
    twins.both("rollout", "status", "--all")
    twins.both("rollout", "stop", "--reason", "later")
    twins.both("rollout", "skip", "shop", "--reason", "it moves", *JSON)
    twins.both("rollout", "resume", "--all", *JSON)
    twins.both("rollout", "rollback", "--wave", "1", "--yes", *JSON)
