"""Times pages of the API with many connections that the server keeps: python scripts/bench_pages.py [CONNECTIONS]

Each connection has ten changes. Prints the median and the 95th percentile of each list in milliseconds, by the
clock and of the processor."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from sqlalchemy import insert
from starlette.testclient import TestClient

from instep.bootstrap import App, open_server
from instep.control.resources import api_keys
from instep.server.app import create_app
from instep.server.rates import Rates
from instep.store.store import utc_now
from instep.store.tables.catalogs import connections, reviews

EACH, PAGES = 10, 40
LISTS = (
    "/connections", "/connections?tag=t7", "/connections?search=499", "/changes", "/changes?status=open",
    "/changes?connection=shop00400", "/sources", "/runs", "/events",
)  # fmt: skip


def fill(app: App, count: int) -> None:
    """Connections by way of their use case, changes straight into their table."""
    objects, now = app.objects, utc_now()
    objects.put("source", "db", {"type": "sqlite", "path": "data/shop.db"}, who="bench")
    objects.put("destination", "lake", {"type": "iceberg"}, who="bench")
    names = [f"shop{n:05}" for n in range(count)]
    with app.store.transaction():
        for at, name in enumerate(names):
            spec = {"source": "db", "destination": "lake", "tags": [f"t{at % 50}"]}
            links = [("source", "db"), ("destination", "lake"), ("tag", spec["tags"][0])]
            app.store.objects.put("connection", name, spec, who="bench", tags=spec["tags"], links=links)
    change = {"kind": "column.added", "table_schema": "main", "table_name": "t", "change": {}, "action": "review",
              "modifiers": {}, "seen": 1, "summary": "x"}  # fmt: skip
    with app.store._db.write() as transaction:
        transaction.execute(insert(connections), [{"name": n, "created": now, "updated": now} for n in names])
        for turn in range(EACH):
            rows = [
                {**change, "id": f"c-{turn}-{name}", "connection": name, "key": f"k{turn}",
                 "status": "open" if turn % 2 else "applied",
                 "first_seen": now - timedelta(seconds=turn * count + n), "last_seen": now}
                for n, name in enumerate(names)
            ]  # fmt: skip
            transaction.execute(insert(reviews), rows)


def timed(client: TestClient, path: str) -> tuple[list[float], list[float]]:
    """Milliseconds of pages, one behind the other: by the clock, and of the processor (what others do on the machine
    meanwhile does not count)."""
    clock: list[float] = []
    spent: list[float] = []
    behind: str | None = None
    for _ in range(PAGES):
        begin, cpu = time.perf_counter(), time.process_time()
        answer = client.get(f"/api/v1{path}{_behind(path, behind)}")
        clock.append((time.perf_counter() - begin) * 1000)
        spent.append((time.process_time() - cpu) * 1000)
        behind = answer.raise_for_status().json()["next_cursor"]
    return sorted(clock), sorted(spent)


def _behind(path: str, cursor: str | None) -> str:
    return f"{'&' if '?' in path else '?'}cursor={cursor}" if cursor else ""


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder, open_server(Path(folder), insecure_dev=True) as app:
        fill(app, count)
        secret = api_keys.create(app.store, "bench", "admin", "bench").secret
        client = TestClient(create_app(app, rates=Rates(1_000_000)), headers={"Authorization": f"Bearer {secret}"})
        for path in LISTS:
            clock, spent = timed(client, path)
            at = int(PAGES * 0.95) - 1
            median = statistics.median(clock)
            print(
                f"{path:32} median {median:6.1f} ms   p95 {clock[at]:6.1f} ms   p95 of CPU {spent[at]:6.1f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000)
