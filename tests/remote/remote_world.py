"""A project from SQLite into DuckDB behind a real server on loopback, and commands run here or over it."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from instep.api.app import create_app
from instep.api.rates import Rates
from instep.bootstrap import open_project, open_server
from instep.control import keys
from instep.model import Job
from instep.store.store import Store
from instep.worker.perform import perform
from listening import listening
from said import Said, run

PROJECT = """\
engine: inline
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: duckdb, path: lake.duckdb}}
policies: {careful: {preset: approve}}
connections: {shop: {policy: careful}}
"""
TABLES = "create table item (id integer primary key, name text); insert into item values (1, 'pen'), (2, 'ink');"
_MOVING = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)?")


@dataclass
class World:
    folder: Path
    capsys: pytest.CaptureFixture[str]
    environment: pytest.MonkeyPatch
    url: str = ""
    key: str = field(default="", repr=False)

    def sql(self, script: str) -> None:
        with closing(sqlite3.connect(self.folder / "shop.db")) as connection:
            connection.executescript(script)

    def store(self) -> Store:
        """To be closed by the caller (`with`)."""
        return Store(f"sqlite:///{self.folder / '.instep' / 'state.db'}")

    def here(self, *words: str) -> Said:
        return self._run("--project", str(self.folder), *words)

    def there(self, *words: str) -> Said:
        """Over the server, where no project is."""
        self.environment.setenv("INSTEP_API_KEY", self.key)
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        try:
            return self._run("--project", str(elsewhere), "--server", self.url, *words)
        finally:
            self.environment.delenv("INSTEP_API_KEY")

    @contextmanager
    def working(self) -> Iterator[list[Job]]:
        """What waits is done in a thread until the block is left; the jobs that were done."""
        end, done = threading.Event(), list[Job]()

        def work() -> None:
            while not end.wait(0.05):
                done.extend(self.work())

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield done
        finally:
            end.set()
            thread.join(60)

    def _run(self, *words: str) -> Said:
        return run(self.capsys, *words)

    def ok(self, *words: str) -> Said:
        said = self.there(*words)
        assert said.code == 0, said
        return said

    def work(self) -> list[Job]:
        """Does what waits in the queue, in this process, as a worker does."""
        done = []
        with open_project(self.folder) as app:
            while (job := app.store.jobs.claim("w-test")) is not None:
                ended = perform(app, job)
                if ended.run:
                    app.store.jobs.note_run(job, ended.run)
                status: Any = "failed" if ended.error else "done"
                done.append(app.store.jobs.finish(job, status, error=ended.error, result=ended.result))
        return done


@contextmanager
def served(folder: Path, **options: Any) -> Iterator[tuple[str, str]]:
    """(URL, an admin's key) of a server over the project in `folder`."""
    with open_server(folder, insecure_dev=True) as app:
        secret = keys.create(app.store, "canary", "admin", "test").secret
        with listening(create_app(app, rates=Rates(requests=100_000), **options)) as url:
            yield url, secret


def steady(text: str) -> str:
    """Without times."""
    return _MOVING.sub("TIME", text)
