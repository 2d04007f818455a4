"""A PostgreSQL whose log can be followed, and worlds over it."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from binlog_world import BinlogWorld, grant
from log_world import LogWorld

from mariadb import MariaDatabase
from postgres_server import Database, Server, launch, make_database

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def log_server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="instep-log-"))
    folder.chmod(0o755)
    settings = "-c wal_level=logical -c max_replication_slots=40 -c max_prepared_transactions=5"
    server = launch(folder / "server", int(os.environ.get("POSTGRES_MAJOR", "18")), settings)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database(log_server: Server) -> Iterator[Database]:
    """A database for this test alone; its slot goes with it."""
    name = f"log_{next(_numbers)}"
    found = make_database(log_server, name)
    yield found
    replace(found, config=replace(found.config, database="postgres")).execute(
        f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'
    )


@pytest.fixture
def world(database: Database, tmp_path: Path) -> Iterator[LogWorld]:
    """Into tables of this process; every table follows the log."""
    world = LogWorld.of(database, tmp_path)
    yield world
    world.close()


@pytest.fixture
def binlog_world(mariadb: MariaDatabase, tmp_path: Path) -> Iterator[BinlogWorld]:
    """Over a MariaDB whose owner may read its log."""
    grant(mariadb)
    world = BinlogWorld.of(mariadb, tmp_path)
    yield world
    world.close()


@pytest.fixture(params=["postgres", pytest.param("mariadb", marks=pytest.mark.slow)])
def either(request: pytest.FixtureRequest) -> LogWorld | BinlogWorld:
    """Over each kind of log."""
    found: LogWorld | BinlogWorld = request.getfixturevalue(
        {"postgres": "world", "mariadb": "binlog_world"}[request.param]
    )
    return found
