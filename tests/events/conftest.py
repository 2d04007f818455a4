"""A world over each source, whose rows are read and merged in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from contract.sources import SOURCES
from sync_world import MakeWorld, World


@pytest.fixture
def make_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeWorld]:
    with ExitStack() as stack:

        def make(kind: str = "postgres", **options: Any) -> World:
            case = stack.enter_context(SOURCES[kind](request))
            world = World(case, tmp_path, engine="local", **options)
            stack.callback(world.close)
            return world

        yield make
