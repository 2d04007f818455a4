"""Which work is done in the process and which on Spark, where the project file leaves it open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.sync.loading.engine import SMALL, Auto
from instep.sync.run import sync
from lake import with_spark
from sync_world import MakeWorld, World, cursor

SETUP = ("CREATE TABLE t (id int PRIMARY KEY, a varchar(20))", "INSERT INTO t VALUES (1, 'x'), (2, NULL)")
MORE = ("UPDATE t SET a = 'y' WHERE id = 2", "INSERT INTO t VALUES (3, 'z')")


@dataclass
class Told:
    """A start that counts, and what a person sees."""

    start: Callable[[], Any]
    starts: int = 0
    steps: list[str] = field(default_factory=list)

    def __call__(self) -> Any:
        self.starts += 1
        return self.start()

    def step(self, text: str) -> None:
        self.steps.append(text)

    def tables(self, rows: object) -> None:
        pass

    def table(self, *_: object, **__: object) -> None:
        pass


def run(world: World, told: Told, small: int = SMALL) -> None:
    report = sync(world.context, progress=told, engine=Auto(told, small))
    assert world.statuses(report) == {"t": "done"}
    assert world.differing() == {}


def test_small_work_needs_no_session(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    told = Told(lambda: pytest.fail("Spark was started"))
    for statements in (SETUP, MORE):
        world.run(*statements)
        run(world, told)
    assert "starting Spark" not in told.steps


@with_spark
def test_large_work_is_done_by_spark(make_world: MakeWorld, session: Callable[[], Any]) -> None:
    world = make_world("sqlite")
    world.run(*SETUP)
    told = Told(session)
    run(world, told, small=0)
    assert told.starts == 1
    assert told.steps.index("starting Spark") < told.steps.index("reading rows")


@with_spark
def test_a_merge_that_only_spark_can_do_starts_it(make_world: MakeWorld, session: Callable[[], Any]) -> None:
    world = make_world("sqlite")
    world.settings = {"t": cursor("id")}
    world.destination = IcebergDestination(IcebergConfig("lake", str(world.folder / "lake"), upsert_rows=0))
    world.run(*SETUP)
    told = Told(session)
    run(world, told)
    assert told.starts == 0
    world.run(*MORE)
    sync(world.context, progress=told, engine=Auto(told))
    assert told.starts == 1
    assert world.rows("t", "id", "a") == [(1, "x"), (2, "y"), (3, "z")]
