"""Tables are committed while others are still being read, and what was committed stays whatever becomes of those."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from instep.errors import ReadError
from instep.stage.spec import Chunk, Reader, ReadSession
from instep.stage.task import run_chunks
from instep.sync.loading import load_tables
from instep.sync.loading.engine import LocalEngine
from instep.sync.run import sync
from sync_world import MakeWorld, World

pytestmark = pytest.mark.drawn(1)

TABLES = [f"t{n}" for n in range(9)]
TIMEOUT = 300.0


@dataclass(frozen=True)
class Waiting:
    """A reader that calls `before` when it comes to one of these tables."""

    reader: Reader
    tables: frozenset[str]
    before: Callable[[], None]

    @contextmanager
    def open(self) -> Iterator[WaitingSession]:
        with self.reader.open() as session:
            yield WaitingSession(self, session)


@dataclass(frozen=True)
class WaitingSession:
    of: Waiting
    session: ReadSession

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        if chunk.table in self.of.tables:
            self.of.before()
        yield from self.session.read(chunk)


@dataclass(frozen=True)
class Slow(LocalEngine):
    """Comes to the table `slow` only after `before`; then, if it is to be, everything breaks off."""

    before: Callable[[], None] = lambda: None
    breaks: bool = False

    def extract(self, reader: Any, specs: Any, chunks: Any, *told: Any) -> Any:
        specs = list(specs)
        slow = frozenset(s.table for s in specs if s.path.endswith("slow"))
        found = super().extract(Waiting(reader, slow, self.before), specs, chunks, *told)
        if self.breaks:
            raise ReadError("the source is gone")
        return found


@dataclass(frozen=True)
class Again(LocalEngine):
    """One task reads everything and dies before it is done with `slow`: it is done again, and `over` then."""

    over: threading.Event = field(default_factory=threading.Event)

    def extract(self, reader: Any, specs: Any, chunks: Any, progress: Any, done: Any) -> Any:
        by_table = {s.table: s for s in specs}
        first = list(run_chunks(reader, by_table, chunks, 0))
        done([result for result in first if not by_table[result.table].path.endswith("slow")])
        again = list(run_chunks(reader, by_table, chunks, 1))
        self.over.set()
        return again


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    world = make_world("sqlite")
    for name in [*TABLES, "slow"]:
        world.run(f"CREATE TABLE {name} (id int PRIMARY KEY)", f"INSERT INTO {name} VALUES (1), (2)")  # noqa: S608
    return world


def committed(world: World) -> set[str]:
    return {t.name for t in world.store.accepted.catalog("shop").tables if loaded(world, t.name)}


def loaded(world: World, name: str) -> bool:
    state = world.destination.schema.state(("shop", name))
    return state is not None and state.rows == 2


def until_some_are_committed(world: World) -> Callable[[], None]:
    def wait() -> None:
        end = time.monotonic() + TIMEOUT
        while not committed(world):
            assert time.monotonic() < end, "nothing is committed beside the reading"
            time.sleep(0.05)

    return wait


def test_tables_are_committed_while_another_is_read(world: World) -> None:
    engine = Slow(threads=2, before=until_some_are_committed(world))
    report = sync(world.context, engine=engine)
    assert set(world.statuses(report).values()) == {"done"}
    assert world.differing() == {}


def test_a_table_that_fails_late_leaves_what_is_committed(world: World) -> None:
    wait = until_some_are_committed(world)

    def fails() -> None:
        wait()
        raise ReadError("no more of it")

    report = sync(world.context, engine=Slow(threads=2, before=fails))
    assert world.statuses(report) == {**dict.fromkeys(TABLES, "done"), "slow": "failed"}
    assert committed(world) == set(TABLES)
    world.sync()
    assert world.differing() == {}


def test_what_was_committed_is_recorded_where_the_run_breaks_off(world: World) -> None:
    engine = Slow(threads=2, before=until_some_are_committed(world), breaks=True)
    with pytest.raises(ReadError):
        sync(world.context, engine=engine)
    done = committed(world)
    assert done
    assert {ref[1] for ref in world.store.loaded.of("shop")} == done
    assert world.statuses(world.sync()) == dict.fromkeys([*TABLES, "slow"], "done")
    assert world.differing() == {}


def test_what_a_task_that_is_done_again_has_staged_is_removed_after_the_commits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge reads what was staged to its end."""
    world.sync()
    for name in [*TABLES, "slow"]:
        world.run(f"UPDATE {name} SET id = 3 WHERE id = 2")  # noqa: S608
    engine, commit = Again(), load_tables.commit

    def late(*given: Any) -> Any:
        assert engine.over.wait(TIMEOUT)
        time.sleep(0.3)  # in which nobody may take its files away
        return commit(*given)

    monkeypatch.setattr(load_tables, "commit", late)
    report = sync(world.context, engine=engine)
    assert {t.error for t in report.tables} == {""}
    assert world.differing() == {}
    assert sorted(world.folder.rglob("*-1-*.parquet")) == []


def test_a_schema_that_moves_while_others_are_read_is_seen_before_the_commit(world: World) -> None:
    world.run("PRAGMA journal_mode=WAL")  # a writer need not wait for readers

    def moves() -> None:
        world.run("ALTER TABLE t1 ADD COLUMN note varchar(9)", "UPDATE t1 SET note = 'n'")

    report = sync(world.context, engine=Slow(threads=2, before=moves))
    assert {t.error for t in report.tables} == {""}
    assert world.rows("t1", "id", "note") == [(1, "n"), (2, "n")]
    assert world.differing() == {}
