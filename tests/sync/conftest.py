"""A world over each source of the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from contract.sources import SOURCES
from sync_world import MakeWorld, World


@pytest.fixture(scope="session")
def session() -> Iterator[Callable[[], Any]]:
    """Gives the one session of this process, started when it is first asked for."""
    started: list[Any] = []

    def start() -> Any:
        from instep.spark.session import start as start_session
        from instep.spark.settings import SparkSettings

        started[:] = [start_session(SparkSettings(master="local[2]", driver_memory="1g"))]
        return started[0]

    yield start
    if started:
        from instep.spark.session import stop

        stop(started[0])


@pytest.fixture
def make_world(request: pytest.FixtureRequest, tmp_path: Path, session: Callable[[], Any]) -> Iterator[MakeWorld]:
    """Makes a world over the source of this kind."""
    with ExitStack() as stack:

        def make(kind: str = "postgres", **options: Any) -> World:
            case = stack.enter_context(SOURCES[kind](request))
            world = World(case, tmp_path, session, **options)
            stack.callback(world.close)
            return world

        yield make


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Over PostgreSQL, the source with ids."""
    return make_world()
