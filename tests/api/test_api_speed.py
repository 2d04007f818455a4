"""Pages stay quick when there is much: 5,000 connections, 50,000 changes, 50,000 runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from api_world import Api, project, serve
from sqlalchemy import insert

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


@pytest.mark.slow
@pytest.mark.parametrize("name", LISTS)
def test_p95_of_a_page(large: Api, name: str) -> None:
    times: list[float] = []
    behind: str | None = None
    for _ in range(40):
        begin = time.process_time()  # of all threads: what others do on this machine meanwhile does not count
        found = large.get(LISTS[name], params={"cursor": behind} if behind else None)
        times.append(time.process_time() - begin)
        behind = found["next_cursor"]
    assert sorted(times)[37] < P95, sorted(times)[-5:]
