"""Pages stay quick when there is much: 5,000 connections, 50,000 changes, 50,000 runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from api_world import Api, project, serve
from sqlalchemy import event, insert

from instep.bootstrap import open_server
from instep.store.object_tables import object_links, objects
from instep.store.store import Store, utc_now
from instep.store.tables import connections, reviews, runs

CONNECTIONS, EACH = 5_000, 10
P95 = 0.1


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
def test_p95_of_a_page(large: Api, name: str) -> None:
    check(large, f"/api/v1{LISTS[name]}")


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVED)
def test_p95_of_a_page_of_what_the_server_keeps(served: Api, name: str) -> None:
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


@pytest.fixture
def served_few(tmp_path: Path) -> Iterator[Api]:
    tmp_path.joinpath("instep.yml").write_text("destinations: {lake: {type: iceberg}}\n")
    with open_server(tmp_path, insecure_dev=True) as app:
        kept(app.store, [f"shop{n:02}" for n in range(50)])
        yield serve(app)


def check(api: Api, path: str) -> None:
    times = pages(api, path, 40)
    assert sorted(times)[37] < P95, sorted(times)[-5:]


def pages(api: Api, path: str, count: int) -> list[float]:
    """Seconds of CPU for each page of a list, from its beginning on."""
    times: list[float] = []
    behind: str | None = None
    for _ in range(count):
        begin = time.process_time()  # of all threads: what others do on this machine meanwhile does not count
        found = api.client.get(path, params={"cursor": behind} if behind else None, headers=api.key("admin"))
        times.append(time.process_time() - begin)
        assert found.status_code == 200, found.text
        body = found.json()
        behind = body.get("data", body)["next_cursor"]
    return times
