"""One connection between a database and a destination of this process, over a real store that outlives its crashes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import event, update

from instep import crash
from instep.destinations.base import Ref
from instep.destinations.facets import Destination
from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Table
from instep.schema.planning.naming import Naming, destination_ref
from instep.schema.planning.projection import TableRead
from instep.schema.planning.step import Step
from instep.schema.policy.policy import Policy
from instep.schema.selection.selection import Selection
from instep.sources.base import CursorRange
from instep.spark.settings import SparkSettings
from instep.stage.spec import Chunk
from instep.store.store import Store
from instep.store.tables.catalogs import runs
from instep.sync.context import SyncContext
from instep.sync.loading.engine import Engine, LocalEngine
from instep.sync.progress import SyncReport
from instep.sync.run import RunScope, sync
from memory.database import MemoryDatabase
from memory.destination import MemoryDestination
from memory.held import changed_by_hand
from memory.source import MemorySnapshot, MemorySource

NAME = "shop"
START = datetime(2026, 3, 1, tzinfo=UTC)
FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Killed(BaseException):
    """The process ends here: no `except Exception` may see it."""


def scratch() -> Path:
    """A new folder, in memory if the machine has such a place: nothing in it has to survive the power."""
    return Path(tempfile.mkdtemp(prefix="instep-memory-", dir=FAST))


@cache
def _empty_store() -> bytes:
    """A store with its tables and nothing in them: making it takes longer than a whole example."""
    folder = scratch()
    try:
        file = folder / "control.db"
        Store(f"sqlite:///{file}").close()
        return file.read_bytes()
    finally:
        shutil.rmtree(folder)


@dataclass
class World:
    """`policy`, `selection` and `settings` (by table name) may be changed between runs. `read` are the names of the
    source's tables that were asked for rows, `steps` all steps that reached the destination,
    `named` what a person has allowed to drop. `crashed`:
    the last process died at work, and no run has come to its end since."""

    ids: bool = True
    policy: Policy = field(default_factory=Policy)
    selection: Selection = field(default_factory=Selection)
    settings: dict[str, TableSettings] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    named: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.folder, self.database = scratch(), MemoryDatabase(ids=self.ids)
        (self.folder / "control.db").write_bytes(_empty_store())
        self.destination: Any = self.make_destination()
        self.dead, self.crashed, self._clock = False, False, START
        self.store = self._open()

    def make_destination(self) -> Any:
        return MemoryDestination(self.folder / "lake")

    def make_source(self) -> Any:
        return Watched(self)

    def engine(self) -> Engine:
        return LocalEngine(threads=1)

    def _now(self) -> datetime:
        self._clock += timedelta(milliseconds=1)
        return self._clock

    def _open(self) -> Store:
        store = Store(f"sqlite:///{self.folder / 'control.db'}", now=self._now)
        event.listen(store._db.engine, "begin", lambda _: self.check_alive())
        return store

    def check_alive(self) -> None:
        if self.dead:
            raise Killed

    def close(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @property
    def context(self) -> SyncContext:
        destination: Destination = self.destination
        naming = Naming(NAME, default_schema=self.database.schema)
        return SyncContext(
            NAME, self.make_source(), Mortal(destination, self), self.policy, self.selection, naming,
            lambda t: self.settings.get(t.name, TableSettings()), self.store, SparkSettings(), who="test", salt=b"salt",
        )  # fmt: skip

    def sync(self, **wanted: Any) -> SyncReport:
        report = sync(self.context, RunScope(**wanted), engine=self.engine())
        self.crashed = False
        return report

    @contextmanager
    def killed_at(self, number: int) -> Iterator[list[str]]:
        """The process dies at the crash point that it reaches as the `number`th; yields the name of that point."""
        died: list[str] = []
        reached = iter(range(number))

        def act(name: str, action: str) -> None:
            self.check_alive()
            if next(reached, None) is None:
                self.dead = self.crashed = True
                died.append(name)
                raise Killed

        armed = ",".join(f"{name}=raise" for name in _points())
        with patch.dict(os.environ, {crash.VARIABLE: armed}), patch.object(crash, "_act", act):
            try:
                yield died
            except Killed:
                self.restart()

    def restart(self) -> None:
        """A new process: the runs of the one before it are those of a process that is gone."""
        self.dead = False
        self.store.close()
        self.store = self._open()
        with self.store._db.write() as transaction:
            transaction.execute(update(runs).where(runs.c.status == "running").values(pid_started="0"))

    # what is there

    def change_by_hand(self, ref: Ref, column: str) -> None:
        """Somebody else drops this column of the destination, or adds one of the name BY_HAND."""
        held = self.destination.held
        held[ref] = changed_by_hand(held[ref], column)

    def place(self, table: Table) -> Ref:
        return destination_ref(table, self.context.naming)

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """The destination's rows of an accepted table by destination name, those marked as deleted included."""
        found: list[dict[str, Any]] = self.destination.write.read(self.place(table)).read_all().to_pylist()
        return found


@cache
def _points() -> tuple[str, ...]:
    return crash.points()


@dataclass(frozen=True)
class Watched(MemorySource):
    """The source, which notes whose rows are asked for."""

    database: MemoryDatabase = field(init=False)
    world: World | None = None

    def __init__(self, world: World) -> None:
        object.__setattr__(self, "world", world)
        for name, value in {"database": world.database, "include": (), "exclude": (), "restricted": False}.items():
            object.__setattr__(self, name, value)

    @contextmanager
    def snapshot(self) -> Iterator[MemorySnapshot]:
        assert self.world is not None
        yield _WatchedSnapshot(self, dict(self.database.tables), self.world.read)


@dataclass(frozen=True)
class _WatchedSnapshot(MemorySnapshot):
    asked: list[str] = field(default_factory=list)

    def chunks(self, read: TableRead, key: str, rows: CursorRange, **more: Any) -> list[Chunk]:
        self.asked.append(read.source.name)
        return super().chunks(read, key, rows, **more)


class Mortal:
    """The destination as a process sees it: once that is dead, nothing that it still tries is done."""

    def __init__(self, destination: Any, world: World) -> None:
        self._destination, self._world = destination, world

    def __getattr__(self, name: str) -> Any:
        self._world.check_alive()
        found = getattr(self._destination, name)
        if name in ("schema", "write", "lifecycle", "views") and found is not None:
            return Mortal(found, self._world)
        return self._noted(found) if name == "execute" else found

    def _noted(self, execute: Callable[..., None]) -> Callable[..., None]:
        def noted(ref: Ref, steps: list[Step], after: Table | None, *more: Any) -> None:
            execute(ref, steps, after, *more)
            self._world.steps.extend(steps)

        return noted
