"""A project from SQLite into DuckDB behind a real server on loopback, and commands run here or over it."""

from __future__ import annotations

import getpass
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from command_runs import Said, run
from instep.bootstrap import open_project, open_server
from instep.control.resources import api_keys
from instep.model import Job
from instep.server.app import create_app
from instep.server.rates import Rates
from instep.store.store import Store
from instep.worker.perform import perform
from listening import listening

PROJECT = """\
engine: local
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
            thread.join(300)

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
                if ended.again is not None:
                    app.store.jobs.give_back(job, "", timedelta(seconds=ended.again / 5))
                    continue
                status: Any = "failed" if ended.error else "done"
                done.append(app.store.jobs.finish(job, status, error=ended.error, result=ended.result))
        return done


@dataclass
class Twins:
    """Two projects that are alike: one that commands are run at, and one that they reach over its server, where a
    worker is."""

    near: World
    far: World

    def write(self, project: str) -> None:
        for world in (self.near, self.far):
            world.folder.joinpath("instep.yml").write_text(project)

    def sql(self, script: str) -> None:
        self.near.sql(script)
        self.far.sql(script)

    def grow(self) -> None:
        """Two syncs, each with a row more than before."""
        self.both("apply", "--yes", "--output", "json")
        for _ in range(2):
            self.sql("insert into item (name) values ('x')")
            self.both("sync", "--output", "json")

    def both(self, *words: str, code: int = 0) -> tuple[Said, Said]:
        """What is said at the project and over the server, which has to be the same but for what differs anyway."""
        here, there = self.near.here(*words), self.far.there(*words)
        assert (here.code, there.code) == (code, code), f"{words}\n{here}\n{there}"
        if "json" in words:
            assert alike(here.json) == alike(there.json), words
        else:
            assert alike(here.out) == alike(there.out), words
            refused = [alike(said.err.partition("error: ")[2]) for said in (here, there)]
            assert refused[0] == refused[1], words
        return here, there

    def ids(self, **fields: str) -> tuple[str, str]:
        """The change of these fields on each side."""
        found = []
        for world in (self.near, self.far):
            with world.store() as store:
                reviews = [r for r in store.reviews.find("shop") if all(getattr(r, k) == v for k, v in fields.items())]
            found.append(reviews[0].id)
        return found[0], found[1]


@contextmanager
def served(folder: Path, **options: Any) -> Iterator[tuple[str, str]]:
    """(URL, an admin's key) of a server over the project in `folder`."""
    with open_server(folder, insecure_dev=True) as app:
        secret = api_keys.create(app.store, "canary", "admin", "test").secret
        with listening(create_app(app, rates=Rates(requests=100_000), **options)) as url:
            yield url, secret


_ID = re.compile(r"\b(?:[rjw]-\d{8}-\d{6}-[0-9a-f]+|[cqk]-[0-9a-f]{4,})\b")
_WHO = re.compile(rf"canary \(ID\)|\b{re.escape(getpass.getuser())}\b")
_SECONDS = re.compile(r"\b\d+\.\d s\b")


UNLIKE = frozenset({"job", "type", "title", "consequences", "fence"})
"""What one side alone says: the job that made a plan, the kind of an error, what an answer leads to, turns of a
rollout."""


def alike(found: Any) -> Any:
    """Without what differs between two projects: times, ids, names of people."""
    if isinstance(found, dict):
        return {k: 0 if k == "seconds" else alike(v) for k, v in found.items() if k not in UNLIKE}
    if isinstance(found, list):
        return [alike(one) for one in found]
    if not isinstance(found, str):
        return found
    return _SECONDS.sub("SECONDS", _WHO.sub("WHO", _ID.sub("ID", steady(found))))


def steady(text: str) -> str:
    """Without times."""
    return _MOVING.sub("TIME", text)
