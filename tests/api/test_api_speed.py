"""Pages stay cheap when there is much: 5,000 connections, 50,000 changes, 50,000 runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from api_world import Api, project, serve
from sqlalchemy import event, insert

from instep.bootstrap import open_server
from instep.control.freshness import freshness_of
from instep.control.resources import api_keys, sign_in
from instep.events import OperationRequested, TableMaintained
from instep.model import TableRun
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.planning.projection import LoadedColumn
from instep.schema.selection.overrides import Switch
from instep.server.web.visit import COOKIE
from instep.store.catalogs.reviews import DetectedChange
from instep.store.store import Store, utc_now
from instep.store.tables.catalogs import connections, reviews, runs
from instep.store.tables.server import object_links, objects
from instep.sync.two_people import Act, requested_alone
from many_changes import fill
from work_count import Work, counted

CONNECTIONS, EACH = 5_000, 10
CALLS, STATEMENTS, STEPS = 400_000, 40, 150_000
"""What a page takes at most: about twice of what the dearest takes today; whoever looks at each change takes more."""


def filled(store: Store, names: list[str]) -> None:
    now = utc_now()
    change = {"key": "k", "kind": "column.added", "table_schema": "main", "change": {}, "action": "review",
              "modifiers": {}, "seen": 1, "summary": "x"}  # fmt: skip
    run = {"kind": "sync", "detail": {}, "lease_until": now, "status": "done"}
    with store._db.write() as transaction:
        transaction.execute(insert(connections), [{"name": n, "created": now, "updated": now} for n in names])
        for turn in range(EACH):
            at = [now - timedelta(seconds=turn * CONNECTIONS + n) for n in range(CONNECTIONS)]
            transaction.execute(insert(reviews), [
                {**change, "id": f"c-{turn}-{n}", "connection": n, "key": f"k{turn}", "table_name": f"t{turn}",
                 "status": "open" if turn % 2 else "applied", "first_seen": t, "last_seen": t}
                for n, t in zip(names, at, strict=True)
            ])  # fmt: skip
            transaction.execute(insert(runs), [
                {**run, "id": f"r-{turn}-{n}", "connection": n, "fence": EACH - turn, "started": t}
                for n, t in zip(names, at, strict=True)
            ])  # fmt: skip


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    names = [f"shop{n:05}" for n in range(CONNECTIONS)]
    lines = "".join(f"  {name}: {{tags: [t{at % 50}]}}\n" for at, name in enumerate(names))
    head = "sources: {db: {type: sqlite, path: shop.db}}\ndestinations: {lake: {type: iceberg}}\nconnections:\n"
    folder: Path = tmp_path_factory.mktemp("large")
    with project(folder, head + lines) as app:
        filled(app.store, names)
        yield serve(app)


def kept(store: Store, names: list[str]) -> None:
    """Each with a source of its own, as a server keeps them."""
    now = utc_now()
    common = {"version": 1, "created": now, "updated": now}
    whole = [{**common, "kind": "source", "name": n, "id": f"s{n}", "tags": [],
              "spec": {"type": "sqlite", "path": f"{n}.db"}} for n in names]  # fmt: skip
    whole += [{**common, "kind": "connection", "name": n, "id": f"c{n}", "tags": [],
               "spec": {"source": n, "destination": "lake"}} for n in names]  # fmt: skip
    links = [{"kind": "connection", "name": n, "what": what, "value": value}
             for n in names for what, value in (("source", n), ("destination", "lake"))]  # fmt: skip
    with store._db.write() as transaction:
        transaction.execute(insert(objects), whole)
        transaction.execute(insert(object_links), links)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    names = [f"shop{n:05}" for n in range(CONNECTIONS)]
    folder: Path = tmp_path_factory.mktemp("served")
    folder.joinpath("instep.yml").write_text("destinations: {lake: {type: iceberg}}\n")
    with open_server(folder, insecure_dev=True) as app:
        filled(app.store, names)
        kept(app.store, names)
        yield serve(app)


LISTS = {
    "connections": "/connections",
    "connections of a tag": "/connections?tag=t7",
    "changes": "/changes",
    "open changes": "/changes?status=open",
    "changes of one": "/changes?connection=shop04000",
    "open changes of one": "/changes?connection=shop04000&status=open",
    "runs": "/runs",
    "runs of one": "/runs?connection=shop04000",
    "sources": "/sources",
    "policies": "/policies",
    "deliveries": "/deliveries",
    "backfills of one": "/connections/shop04000/backfills",
}


SERVED = {
    "connections": "/api/v1/connections",
    "sources": "/api/v1/sources",
    "compatible": "/v1/connections",
    "compatible of a group": "/v1/connections?group_id=lake",
    "compatible by schema": "/v1/connections?schema=shop04000",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LISTS)
def test_a_page_of_much(large: Api, name: str) -> None:
    check(large, f"/api/v1{LISTS[name]}")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["large", "served"])
def test_all_connections_are_counted_by_state(place: str, request: pytest.FixtureRequest) -> None:
    api: Api = request.getfixturevalue(place)
    api.client.get("/api/v1/connection-counts", headers=api.key("admin"))  # notes that the key was used
    with counted(api.store._db.engine) as work:
        found = api.client.get("/api/v1/connection-counts", headers=api.key("admin")).json()
    assert found["total"] == CONNECTIONS == sum(found["states"].values())
    assert work.statements < STATEMENTS + 5 * CONNECTIONS // 1000
    assert work.calls < CALLS * CONNECTIONS // 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVED)
def test_a_page_of_what_the_server_keeps(served: Api, name: str) -> None:
    check(served, SERVED[name])


def test_a_page_of_connections_takes_as_many_queries_however_long_it_is(served_few: Api) -> None:
    queries = list[str]()
    engine = served_few.store._db.engine
    event.listen(engine, "before_cursor_execute", lambda *args: queries.append(args[2]))
    asked = []
    for path in ("/v1/connections", "/api/v1/connections"):
        pages(served_few, path, 1)  # notes that the key was used
        for limit in (2, 40):
            queries.clear()
            assert pages(served_few, f"{path}?limit={limit}", 1)
            asked.append(len(queries))
    assert asked[0] == asked[1]
    assert asked[2] == asked[3]


def test_a_page_of_status_takes_as_many_queries_however_long_it_is(served_few: Api) -> None:
    """Also where each connection has a schema, switches, runs, pauses, backfills and what was maintained."""
    names = [f"shop{n:02}" for n in range(50)]
    for name in names:
        lived(served_few.store, name)
    queries = list[str]()
    engine = served_few.store._db.engine
    event.listen(engine, "before_cursor_execute", lambda *args: queries.append(args[2]))
    asked = []
    for limit in (1, 50, 1, 50):
        queries.clear()
        found = served_few.get("/status", params={"limit": limit})["items"]
        assert [one["connection"] for one in found] == names[:limit]
        asked.append(len(queries))
        for one in found:
            assert one["schema_version"] == 1
            assert one["outcomes"] == {"done": 1}
            assert [(r["column"], r["is"]) for r in one["reselected"]] == [("main.item.note", "on")]
            assert (one["waiting_changes"], len(one["pauses"]), len(one["backfills"])) == (1, 1, 1)
            assert (one["maintained"], one["last_maintained"]["files"]) == (1, 3)
    assert len(set(asked[1:])) == 1, asked  # the first one notes that the key was used
    assert asked[1] < 60  # each statement has a BEGIN of its own
    for index, word in (("ix_events_maintained", "table.maintained"), ("ix_table_runs_held", "invalid_values > 0")):
        [query] = [q for q in queries if word in q]
        with engine.connect() as connection:
            steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", ("x",) * query.count("?"))
            assert index in str(steps.all())


def lived(store: Store, name: str) -> None:
    """A life of a connection, as its status tells it."""
    columns = tuple(Column(c, parse("string"), alias=c) for c in ("id", "note"))
    store.accepted.add(name, Catalog.of([Table("main", "item", columns, alias="item")]), who="t", why="w")
    store.reviews.record(
        name, [DetectedChange("k", "column.added", ("main", "item"), "x", "s", {}, "review", "r", "w")], "f"
    )
    for _ in range(3):
        run = store.runs.claim(name, "sync")
        store.runs.record_tables(TableRun(run.id, ("main", "item"), "done"))
        store.runs.finish(run, "done")
    store.loaded.save(name, {("main", "item"): [LoadedColumn("id"), LoadedColumn("note", read=False)]})
    store.switches.set(name, [Switch("main", "gone", enabled=False)], "t")
    store.pauses.pause(name, "why")
    store.backfills.request(name, ("main", "item"), column="id")
    for files in (9, 3):
        store.events.add(TableMaintained(name, "r", "main.item", 20, files, 20, 5, 1, 1, 1, 0, 0.5))


@pytest.fixture
def served_few(tmp_path: Path) -> Iterator[Api]:
    tmp_path.joinpath("instep.yml").write_text("destinations: {lake: {type: iceberg}}\n")
    with open_server(tmp_path, insecure_dev=True) as app:
        kept(app.store, [f"shop{n:02}" for n in range(50)])
        yield serve(app)


def check(api: Api, path: str) -> None:
    pages(api, path, 1)  # notes that the key was used
    for work in pages(api, path, 10):
        assert work.calls < CALLS
        assert work.statements < STATEMENTS
        assert work.steps < STEPS, (path, work)


def pages(api: Api, path: str, count: int) -> list[Work]:
    """What each page of a list takes, from its beginning on."""
    taken: list[Work] = []
    behind: str | None = None
    for _ in range(count):
        with counted(api.store._db.engine) as work:
            found = api.client.get(path, params={"cursor": behind} if behind else None, headers=api.key("admin"))
        taken.append(work)
        assert found.status_code == 200, found.text
        body = found.json()
        behind = body.get("data", body)["next_cursor"]
    return taken


TABLES, COLUMNS = 5_000, 40
BROAD = """\
four_eyes: true
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
connections: {conn0000: {freshness: 30m, tables: {main.t00001: {freshness: 12h}}}}
"""


@pytest.fixture(scope="module")
def broad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A connection of many tables with freshness targets, under four_eyes, with many requests and changes on record."""
    columns = tuple(Column(f"c{n}", parse("string"), alias=f"c{n}") for n in range(COLUMNS))
    refs = [("main", f"t{n:05}") for n in range(TABLES)]
    with project(tmp_path_factory.mktemp("broad"), BROAD) as app:
        store = app.store
        store.accepted.add("conn0000", Catalog.of([Table(*r, columns, alias=r[1]) for r in refs]), who="t", why="w")
        store.fresh_tables.loaded("conn0000", refs, utc_now() - timedelta(hours=1))
        run = store.runs.claim("conn0000", "sync")
        store.runs.record_tables(*(TableRun(run.id, ref, "done") for ref in refs))
        store.runs.finish(run, "done")
        with store.transaction():
            for number in range(1_500):
                store.events.add(OperationRequested("conn0000", "restore", f"main.t{number}", "ann"))
        fill(store, 2_000, 2)
        yield serve(app)


@pytest.mark.slow
@pytest.mark.parametrize("search", ["", "&search=t049"])
def test_a_page_of_tables_with_freshness(broad: Api, search: str) -> None:
    """The freshness of 50 tables is worked out for a page of 50, not that of 5,000."""
    path = f"/api/v1/connections/conn0000/status/tables?limit=50{search}"
    [work] = pages(broad, path, 2)[1:]
    assert work.calls < CALLS
    assert work.statements < STATEMENTS
    found = broad.get(path.removeprefix("/api/v1"))["items"]
    assert len(found) == 50
    assert {one["freshness"]["state"] for one in found} <= {"late", "on_time"}
    store, shown = broad.store, [tuple(one["table"]) for one in found]
    with counted(store._db.engine) as few:
        freshness_of(store, broad.app.project, ["conn0000"], utc_now(), whole=True, only=shown)  # type: ignore[arg-type]
    assert few.calls < 100_000


@pytest.mark.slow
def test_a_connection_without_its_freshness_looks_at_no_table(broad: Api) -> None:
    with counted(broad.store._db.engine) as whole:
        assert broad.get("/connections/conn0000")["freshness"]["late"] == TABLES - 1
    with counted(broad.store._db.engine) as without:
        assert broad.get("/connections/conn0000", params={"freshness": "false"})["freshness"] is None
    assert without.calls < whole.calls / 5


@pytest.mark.slow
def test_the_page_of_a_connection_works_out_its_freshness_once(broad: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[bool]()

    def watched(*given: Any, **how: Any) -> Any:
        seen.append(how.get("only") is None)
        return freshness_of(*given, **how)

    for module in ("instep.control.queries.work", "instep.bootstrap.status"):
        monkeypatch.setattr(f"{module}.freshness_of", watched)
    token = sign_in.begin(broad.store, api_keys.create(broad.store, "eye", "viewer", "test").key).token
    answer = broad.client.get("/connections/conn0000", headers={"Cookie": f"{COOKIE}={token}"})
    assert answer.status_code == 200
    assert "4,999 tables are late" in answer.text
    assert sorted(seen) == [False, True]


@pytest.mark.slow
def test_the_status_of_many_tables_lists_200_of_them(broad: Api) -> None:
    found = broad.get("/connections/conn0000/status")
    assert len(found["freshness"]) == 200
    assert found["freshness_counts"] == {"late": TABLES - 1, "on_time": 1}


@pytest.mark.slow
def test_requests_and_approvals_under_four_eyes(broad: Api) -> None:
    """A request looks at the last ones of its connection, and an approval of 200 changes does not look at each."""
    act = Act("conn0000", "restore", "main.t1")
    with counted(broad.store._db.engine) as work:
        assert requested_alone(broad.store, act, "ann") is not None
    assert work.calls < CALLS
    assert work.statements < STATEMENTS
    ids = [
        one["id"]
        for one in broad.get("/changes", params={"status": "open", "connection": "conn0000", "limit": 200})["items"]
    ]
    headers = broad.key("approver")
    with counted(broad.store._db.engine) as work:
        answer = broad.client.post("/api/v1/changes/answers", json={"ids": ids, "answer": "approved"}, headers=headers)
    assert (answer.status_code, answer.json()["answered"]) == (200, len(ids))
    assert work.statements < STATEMENTS * len(ids)
    with counted(broad.store._db.engine) as work:
        again = broad.get("/changes", params={"status": "approved", "connection": "conn0000", "limit": 200})["items"]
    assert len(again) == len(ids)
    assert work.statements < STATEMENTS
