"""Connections from both servers to each destination."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract.sources import SOURCES
from postgres_server import Database, Server, make_database
from sync_world import World

Connect = Callable[[str, str], World]


@pytest.fixture(scope="session")
def landing(postgres_server: Server) -> Iterator[Database]:
    """A database for what arrives."""
    made = make_database(postgres_server, "landing")
    yield made
    server_wide = replace(made, config=made.config.model_copy(update={"database": "postgres"}))
    server_wide.execute("DROP DATABASE landing WITH (FORCE)")


@pytest.fixture
def connect(request: pytest.FixtureRequest, tmp_path: Path, landing: Database) -> Iterator[Connect]:
    """(source, destination) to a world whose rows are read and merged in this process."""
    with ExitStack() as stack:

        def make(source: str, destination: str) -> World:
            world = World(stack.enter_context(SOURCES[source](request)), tmp_path, engine="local")
            stack.callback(world.close)
            if destination != "iceberg":
                world.destination = _destination(destination, tmp_path, landing)
            return world

        yield make


def _destination(kind: str, folder: Path, landing: Database) -> Any:
    if kind == "duckdb":
        from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination

        return DuckDbDestination(DuckDbConfig.resolved(name="lake", path=str(folder / "shop.duckdb")))
    if kind == "delta":
        from instep.destinations.delta.destination import DeltaConfig, DeltaDestination

        return DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=str(folder / "delta")))
    from instep.destinations.postgres.connect import PostgresServerConfig
    from instep.destinations.postgres.destination import PostgresDestination

    landing.execute("DROP SCHEMA IF EXISTS shop, _instep CASCADE")
    staging = str(folder / "staging")
    return PostgresDestination(PostgresServerConfig.resolved(name="lake", **landing.login, staging=staging))
