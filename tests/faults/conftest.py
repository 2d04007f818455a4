"""Worlds whose source is reached through a network that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract.sources import SOURCES
from fault_proxy import Proxy, before
from forks import forked
from sync_world import World

__all__ = ["forked", "make_far"]

MakeFar = Callable[..., tuple[World, Proxy]]
"""(source kind, settings of its connection while silence is the fault) to a world and the network before its source."""


@pytest.fixture
def make_far(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeFar]:
    with ExitStack() as stack:

        def make(kind: str, **settings: Any) -> tuple[World, Proxy]:
            case = stack.enter_context(SOURCES[kind](request))
            near: Any = case.source()
            proxy = stack.enter_context(before(near.config.port))

            def far(**_: Any) -> Any:
                short = settings if proxy.fault.how == "silence" else {}
                return type(near)(near.config.model_copy(update={"port": proxy.port, **short}))

            world = World(replace(case, source=far), tmp_path)
            stack.callback(world.close)
            return world, proxy

        yield make
