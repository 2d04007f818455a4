"""Fixtures that every room's tests may use: a real PostgreSQL, one per test session, a database per test."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from instep.sources.postgres_connect import PostgresConfig, conninfo
from mariadb import mariadb, mariadb_server  # noqa: F401 - fixtures
from postgres_server import PASSWORD, SUPERUSER, Server, launch

READER = "reader"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Database:
    """A database of its own: `config` logs in as its owner, `reader` as a user who may SELECT and no more."""

    config: PostgresConfig
    reader: PostgresConfig

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(conninfo(self.config), autocommit=True) as connection:
            cursor = connection.execute(sql.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The session's server, PostgreSQL 18 or POSTGRES_MAJOR=16. A short path: socket names have a limit."""
    folder = Path(tempfile.mkdtemp(prefix="instep-pg-"))
    folder.chmod(0o755)
    server = launch(folder / "server", int(os.environ.get("POSTGRES_MAJOR", "18")))
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def make_database(server: Server, name: str) -> Database:
    """An empty database whose tables, present and future, `reader` may read."""
    owner = PostgresConfig(
        host="127.0.0.1", port=server.port, database="postgres", user=SUPERUSER, password=PASSWORD, connect_timeout=30
    )
    server_wide = Database(owner, owner)
    server_wide.execute(f'CREATE DATABASE "{name}"')
    if not server_wide.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", READER):
        server_wide.execute(f"CREATE ROLE {READER} LOGIN PASSWORD 'reader secret'")
    config = replace(owner, database=name)
    database = Database(config, replace(config, user=READER, password="reader secret"))
    database.execute(f"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {READER}")
    return database


@pytest.fixture
def postgres(postgres_server: Server) -> Iterator[Database]:
    """A database for this test alone."""
    name = f"test_{next(_numbers)}"
    database = make_database(postgres_server, name)
    yield database
    replace(database, config=replace(database.config, database="postgres")).execute(
        f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'
    )
