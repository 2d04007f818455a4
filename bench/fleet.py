"""Thousands of connections of one worker: the time of a detection of all of them, and of what the queue does for it.

python bench/fleet.py [--connections 5000] [--lanes 2] [--jobs 50000] [--queue] [--profile 200]

Each connection has a SQLite source of its own with three tables, unchanged since they were accepted. What is measured:
the schedules of all are written and fired, a worker does the detections they bring, and jobs are claimed among
`--jobs` that wait. `--queue`: these claims alone. `--profile`: where the time of so many detections goes, in this
process.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import insert

from instep.bootstrap import App, open_project
from instep.control import schedules
from instep.store.store import Store
from instep.store.tables.queue import jobs
from instep.store.work.jobs import WAITED_FOR
from instep.sync.schema_changes.evolve import evolve, preview
from instep.worker.perform import perform
from instep.worker.worker import JobWorker, WorkerLimits

T = TypeVar("T")
TABLES = "; ".join(
    f"create table {name} (id integer primary key, {', '.join(f'c{n} text' for n in range(8))})"
    for name in ("customers", "orders", "lines")
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="seconds for a fleet of connections")
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--queue", action="store_true")
    parser.add_argument("--profile", type=int, default=0, metavar="DETECTIONS")
    parser.add_argument("--folder", type=Path, help="keep the fleet here, and take it from here the next time")
    said = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-fleet-") as temporary:
        folder = said.folder or Path(temporary)
        if not said.queue and not (folder / "instep.yml").exists():
            make(folder, said.connections)
        if said.profile:
            profile(folder, said.profile)
            return 0
        if not said.queue:
            report(folder, said.lanes)
        claims(folder / "queue.db", said.connections, said.jobs)
    return 0


def make(folder: Path, count: int) -> None:
    """The project, its sources, and what was accepted of each."""
    names = [f"shard{number:05}" for number in range(count)]
    (folder / "sources").mkdir(parents=True)
    template = folder / "sources" / "template.db"
    with closing(sqlite3.connect(template)) as connection:
        connection.executescript(TABLES)
    for name in names:
        shutil.copyfile(template, folder / "sources" / f"{name}.db")
    sources = "".join(f"  {n}_db: {{type: sqlite, path: sources/{n}.db}}\n" for n in names)
    pipes = "".join(f"  {n}: {{source: {n}_db}}\n" for n in names)
    text = f"engine: local\nsources:\n{sources}destinations:\n  lake: {{type: duckdb, path: lake.duckdb}}\n"
    (folder / "instep.yml").write_text(f"{text}connections:\n{pipes}")
    with open_project(folder) as app:
        took(f"accepting {count} connections", lambda: accept(app, names))


def accept(app: App, names: Sequence[str]) -> None:
    first = app.sync_context(names[0])
    evolve(first, preview(first).plan)
    catalog = app.store.accepted.catalog(first.name)
    with app.store.transaction():
        for name in names[1:]:
            app.store.accepted.add(name, catalog, who="bench", why="baseline", base="")


def report(folder: Path, lanes: int) -> None:
    app = took("reading the project", lambda: open_project(folder))
    with app:
        store, project = app.store, app.project
        names = project.connections
        now = datetime.now(UTC)
        took("writing all schedules", lambda: schedules.reconcile(store, project, now))
        took("writing them again, unchanged", lambda: schedules.reconcile(store, project, now))
        late = now + timedelta(days=2)
        took("firing all schedules", lambda: drained(lambda: schedules.fire(store, late)))
    worker = JobWorker(partial(open_project, folder), WorkerLimits(lanes=lanes, poll=0.2), lambda _: None)
    took(f"first detection of {len(names)} connections", lambda: worker.run(drain=True))
    with open_project(folder) as app:
        print(f"jobs: {app.store.jobs.counts()}", flush=True)
        took("firing all schedules", lambda: drained(lambda: schedules.fire(app.store, late + timedelta(days=2))))
    worker = JobWorker(partial(open_project, folder), WorkerLimits(lanes=lanes, poll=0.2), lambda _: None)
    took(f"detection of {len(names)} unchanged connections", lambda: worker.run(drain=True))
    with open_project(folder) as app:
        print(f"jobs: {app.store.jobs.counts()}", flush=True)


def claims(file: Path, connections: int, count: int) -> None:
    """A queue with so many jobs that wait, and half of its connections paused."""
    with Store(f"sqlite:///{file}") as store:
        took(f"filling the queue with {count} jobs", lambda: fill(store, connections, count))
        with store.transaction():
            for number in range(0, connections, 2):
                store.pauses.pause(f"shard{number:05}", "bench")
        found = took(f"claiming 200 of {count} jobs", lambda: [store.jobs.claim("bench") for _ in range(200)])
        took("looking for one that somebody waits for, 200 times", lambda: waited_for(store))
        took("200 signs of life", lambda: [store.jobs.heartbeat(job) for job in found if job])
        took("ending 200", lambda: [store.jobs.finish(job) for job in found if job])
        took("counting all by status", store.jobs.counts)


def fill(store: Store, connections: int, count: int) -> None:
    """Rows as `enqueue` writes them, many at once."""
    with store.transaction():
        for number in range(connections):
            store.jobs.enqueue(f"shard{number:05}", "sync", key=str(number), priority=number % 3)
        first = store.jobs.find(limit=1)[0]
        rows = [
            {**vars(first), "id": f"j-{n:06}", "connection": f"shard{n % connections:05}", "key": str(n)}
            for n in range(connections, count)
        ]
        with store._db.write() as transaction:
            transaction.execute(insert(jobs), rows)


def waited_for(store: Store) -> None:
    for _ in range(200):
        store.jobs.claim("bench", at_least=WAITED_FOR)


def drained(fire: Callable[[], int]) -> None:
    while fire():
        pass


def profile(folder: Path, count: int) -> None:
    with open_project(folder) as app:
        names = app.project.connections[:count]
        jobs = [replace(app.store.jobs.enqueue(name, "detect")[0], priority=1) for name in names]
        perform(app, jobs[0])
        profiler = cProfile.Profile()
        profiler.enable()
        for job in jobs:
            perform(app, job)
        profiler.disable()
    pstats.Stats(profiler).sort_stats("cumulative").print_stats(60)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def took(what: str, step: Callable[[], T]) -> T:
    begun, used = time.monotonic(), time.process_time()
    found = step()
    print(f"{what}: {time.monotonic() - begun:.2f} s, CPU {time.process_time() - used:.2f} s", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
