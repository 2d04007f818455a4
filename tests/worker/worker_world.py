"""A project of several connections from SQLite into DuckDB, and its queue."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from instep.bootstrap import App, open_project
from instep.model import Job, JobKind
from instep.store.store import Store
from instep.worker.perform import JobEnd, perform
from instep.worker.worker import JobWorker, WorkerLimits

HEAD = "sources:\n"


@dataclass
class Shop:
    """`names` are the connections; each has a source and a destination of its own."""

    folder: Path
    names: tuple[str, ...] = ("shop",)
    said: list[str] = field(default_factory=list)
    engine: str = "local"
    store_url: str = ""
    """Of the queue; "" for a file in the folder. It has to be in the variable STORE, too."""

    def write(self, options: str = "tags: []") -> None:
        sources = "".join(f"  {n}_db: {{type: sqlite, path: {n}.db}}\n" for n in self.names)
        lakes = "".join(f"  {n}_lake: {{type: duckdb, path: {n}_lake.duckdb}}\n" for n in self.names)
        pipes = "".join(f"  {n}: {{source: {n}_db, destination: {n}_lake, {options}}}\n" for n in self.names)
        head = f"engine: {self.engine}\nspark: {{driver_memory: 1g}}\n{HEAD}"
        head = f"store: ${{env:STORE}}\n{head}" if self.store_url else head
        text = f"{head}{sources}destinations:\n{lakes}connections:\n{pipes}"
        self.put(text)

    def put(self, text: str) -> None:
        """As the project's file, at once: who looks at it meanwhile sees no half of it."""
        fresh = self.folder / "instep.new"
        fresh.write_text(text)
        fresh.replace(self.folder / "instep.yml")

    def sql(self, script: str) -> None:
        for name in self.names:
            with closing(sqlite3.connect(self.folder / f"{name}.db", timeout=60)) as connection:
                connection.executescript(script)

    @contextmanager
    def app(self) -> Iterator[App]:
        with open_project(self.folder) as app:
            yield app

    def store(self) -> Store:
        """To be closed by the caller (`with`)."""
        return Store(self.store_url or f"sqlite:///{self.folder / '.instep' / 'state.db'}")

    def perform(self, kind: JobKind, attempts: int = 3, **options: object) -> JobEnd:
        """Enqueues, claims and does one job in this process."""
        with self.app() as app:
            app.store.jobs.enqueue("shop", kind, key=str(options), options=options, attempts=attempts)
            job = app.store.jobs.claim("test")
            assert job is not None
            ended = perform(app, job)
            app.store.jobs.finish(job, "failed" if ended.error else "done", error=ended.error, result=ended.result)
            return ended

    def rows(self, sql: str, name: str = "shop") -> list[tuple[object, ...]]:
        import duckdb

        with duckdb.connect(str(self.folder / f"{name}_lake.duckdb"), read_only=True) as connection:
            return connection.execute(sql).fetchall()

    def count(self, what: str, name: str = "shop") -> tuple[object, ...]:
        """Of the table item."""
        return self.rows(f"select {what} from {name}.item", name)[0]  # noqa: S608

    def worker(self, **limits: float) -> JobWorker:
        said = self.said.append
        return JobWorker(partial(open_project, self.folder), WorkerLimits(**{"poll": 0.1, **limits}), said)  # type: ignore[arg-type]

    @contextmanager
    def working(self, **limits: float) -> Iterator[JobWorker]:
        """A worker in a thread; it has ended when the block is left."""
        worker = self.worker(**limits)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            yield worker
        finally:
            worker.stop()
            thread.join(300)
            assert not thread.is_alive()

    def process(self, *words: str, command: str = "worker") -> subprocess.Popen[bytes]:
        """`instep worker`, or another command, as a process of its own."""
        line = [sys.executable, "-m", "instep.cli.main", "--project", str(self.folder), command, *words]
        return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def until(true: Callable[[], object], seconds: float = 300) -> None:
    """Waits for something to be so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it has not happened"
        time.sleep(0.05)


def job(shop: Shop, job_id: str) -> Job:
    with shop.store() as store:
        return store.jobs.get(job_id)


def lanes_of(pid: int) -> list[int]:
    """The processes that a process has started to work, the leaders of groups of their own."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and int(fields[2]) == int(entry.name):
            found.append(int(entry.name))
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
