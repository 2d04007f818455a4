"""A world over a connector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sdk_world import World

from connector_world import Case, ConnectorWorld, MakeConnector
from forks import forked

__all__ = ["environments", "forked", "make_connector", "world"]


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of virtual environments for all tests of a session."""
    return tmp_path_factory.mktemp("environments")


@pytest.fixture
def world(tmp_path: Path, environments: Path) -> World:
    """A connector's process and its segments, without a destination."""
    return World(tmp_path, environments)


@pytest.fixture
def make_connector(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MakeConnector]:
    """Makes a world (into: duckdb, iceberg, delta, postgres)."""
    with ExitStack() as stack:

        def make(into: str = "duckdb", **options: Any) -> ConnectorWorld:
            folder = tmp_path / f"world-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            if into == "postgres":
                options["database"] = request.getfixturevalue("postgres")
            world = ConnectorWorld(Case(), folder, into=into, **options)  # type: ignore[arg-type]
            stack.callback(world.close)
            return world

        yield make
