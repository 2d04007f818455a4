"""A PostgreSQL whose log can be followed, and worlds over it."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from binlog_world import BinlogWorld, grant
from followed import Followed
from log_world import LogWorld

from instep.cli.main import main
from instep.project.sections.databases import MySqlSourceSection, PostgresSourceSection
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
    replace(found, config=found.config.model_copy(update={"database": "postgres"})).execute(
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
def either(request: pytest.FixtureRequest) -> Followed:
    """Over each kind of log."""
    found: Followed = request.getfixturevalue({"postgres": "world", "mariadb": "binlog_world"}[request.param])
    return found


PROJECT = """\
version: 1
project: shop
sources:
  db:
    {{type: {kind}, host: 127.0.0.1, port: {port}, database: {database}, user: {user},
      password: "${{env:DB_PASSWORD}}"}}
destinations:
  file: {{type: duckdb, path: shop.duckdb}}
connections:
  shop: {{source: db, destination: file, mode: cdc}}
"""
Run = Callable[..., str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Makes a project over a database, and what runs a command in it and answers what that said."""

    def command(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        found = main(["--project", str(tmp_path), *words])
        said = capsys.readouterr()
        assert found == code, said
        return said.out + said.err

    def make(kind: str, config: PostgresSourceSection | MySqlSourceSection) -> Run:
        text = PROJECT.format(kind=kind, port=config.port, database=config.database, user=config.user)
        tmp_path.joinpath("instep.yml").write_text(text)
        monkeypatch.setenv("DB_PASSWORD", config.password)
        return command

    return make
