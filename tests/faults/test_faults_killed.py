"""A source whose server or program is killed while its rows are read: the sync ends with exit code 4, and names the
tables and the next command; nothing of them is committed."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import mariadb
import postgres_server
from airbyte_world import PLAYER, records, state, stream
from command_runs import Said, run

ROWS = 4_000
PROJECT = """\
engine: local
sources: {{db: {source}}}
destinations: {{lake: {{type: duckdb, path: lake.duckdb}}}}
connections: {{shop: {{source: db, destination: lake, policy: allow_all}}}}
"""
LOGIN = "host: 127.0.0.1, database: shop, password: '${env:DB_PASSWORD}', rows_per_second: 500"


@dataclass(frozen=True)
class Victim:
    """`source` is its section of the project, `tables` those that are read; `reads` answers whether rows come."""

    source: str
    password: str
    tables: tuple[str, ...]
    reads: Callable[[], bool]
    kill: Callable[[], None]


@contextmanager
def postgres(folder: Path, tables: tuple[str, ...]) -> Iterator[Victim]:
    server = postgres_server.launch(folder / "server")
    try:
        database = postgres_server.make_database(server, "shop")
        for table in tables:
            rows = f"SELECT i id, repeat('x', 9000) pad FROM generate_series(1, {ROWS}) i"  # noqa: S608
            database.execute(f"CREATE TABLE {table} AS {rows}")
            database.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (id)")
        user = database.config
        reading = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'COPY%'"
        yield Victim(
            f"{{type: postgres, port: {user.port}, user: {user.user}, {LOGIN}}}",
            user.password,
            tuple(f"public.{table}" for table in tables),
            lambda: bool(database.execute(reading)),
            server.kill,
        )
    finally:
        if server.runs():
            server.stop()


@contextmanager
def mysql(folder: Path, tables: tuple[str, ...]) -> Iterator[Victim]:
    server = mariadb.launch(folder / "server")
    reading = "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'SELECT%`pad`%' AND id <> CONNECTION_ID()"

    def execute(*statements: str) -> tuple[Any, ...]:
        with mariadb.open_as(server.admin) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return tuple(cursor.fetchall())

    try:
        execute("CREATE DATABASE shop")
        for table in tables:
            execute(
                f"CREATE TABLE shop.{table} (id int PRIMARY KEY, pad varchar(9000))",
                f"INSERT INTO shop.{table} SELECT seq, repeat('x', 9000) FROM seq_1_to_{ROWS}",  # noqa: S608
            )
        user = server.admin
        source = f"{{type: mysql, port: {user.port}, user: {user.user}, {LOGIN}}}"
        named = tuple(f"shop.{table}" for table in tables)
        yield Victim(source, user.password, named, lambda: bool(execute(reading)), server.kill)
    finally:
        server.kill()


Open = Callable[[Path, tuple[str, ...]], AbstractContextManager[Victim]]
SERVERS: Mapping[str, Open] = {"postgres": postgres, "mysql": mysql}


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="instep-kill-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def killed(folder: Path, capsys: pytest.CaptureFixture[str], victim: Victim) -> Said:
    """What a sync says whose source is killed once it reads."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            with suppress(Exception):
                if victim.reads():
                    victim.kill()
                    return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        return run(capsys, "--project", str(folder), "sync")
    finally:
        over.set()
        thread.join(300)


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("tables", [("t",), ("t", "u")], ids=["one table", "two tables"])
@pytest.mark.parametrize("kind", SERVERS)
def test_a_server(
    short: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    tables: tuple[str, ...],
) -> None:
    with SERVERS[kind](short, tables) as victim:
        monkeypatch.setenv("DB_PASSWORD", victim.password)
        (tmp_path / "instep.yml").write_text(PROJECT.format(source=victim.source))
        said = killed(tmp_path, capsys, victim)
    assert said.code == 4, said
    for table in victim.tables:
        assert table in said.out + said.err, said
    assert "then run `instep sync` again" in " ".join((said.out + said.err).split()), said
    assert victim.password not in said.out + said.err


SDK = """
import os
from fivetran_connector_sdk import Connector, Operations as op

def schema(configuration):
    return [{"table": name, "primary_key": ["id"], "columns": {"id": "LONG"}} for name in ("users", "orders")]

def update(configuration, state):
    op.upsert("users", {"id": 1})
    op.checkpoint({"at": 1})
    for i in range(5000):
        op.upsert("users", {"id": i})
    os.kill(os.getpid(), 9)

connector = Connector(update=update, schema=schema)
"""
KILLS_BRIDGE = PLAYER.replace("os.kill(os.getpid(), 9)", "os.kill(os.getppid(), 9); time.sleep(60)")
PROGRAMS = {"connector": SDK, "airbyte connector": PLAYER, "airbyte bridge": KILLS_BRIDGE}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    program = tmp_path / "source" / "connector.py"
    program.parent.mkdir()
    program.write_text(PROGRAMS[kind])
    streams = [stream()]
    lines = [*records(1, 2), state(2, 2), *records(3, 4), ["sleep", 2], ["kill"]]
    script = {"specification": {}, "streams": streams, "after": streams, "lines": lines}
    (program.parent / "script.json").write_text(json.dumps(script))
    command = json.dumps([sys.executable, str(program)])
    of_kind = (
        f"type: connector, path: {program.parent}" if kind == "connector" else f"type: airbyte, command: {command}"
    )
    source = f"{{{of_kind}}}"
    (tmp_path / "instep.yml").write_text(PROJECT.format(source=source))
    said = run(capsys, "--project", str(tmp_path), "sync")
    assert said.code == 4, said
    text = " ".join(said.err.split())
    assert "not complete: users" in text
    assert "orders" not in text
    assert "run `instep sync` again" in text
