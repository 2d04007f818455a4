"""A real MariaDB for tests, from Debian's mariadb-server, on a loopback TCP port: fixtures `mariadb_server` (one per
session) and `mariadb` (a database for one test). Skipped where the programs are missing, but not in CI."""

from __future__ import annotations

import getpass
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from instep.project.sections.databases import MySqlSourceSection
from postgres_server import free_port

PASSWORD = "kö'rrekt \\ horse"
_SETTINGS = (
    "--no-defaults", "--bind-address=127.0.0.1", "--log-bin=binlog", "--binlog-format=ROW",
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=32M", "--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync",
    "--debug-no-sync",  # as fsync=off of PostgreSQL: the log of each CREATE and DROP would be synced several times
    "--max-allowed-packet=256M", "--character-set-server=utf8mb4", "--lower-case-table-names=0",
)  # fmt: skip
_numbers = itertools.count(1)


@dataclass
class MariaServer:
    """A running server; `admin` may do everything."""

    folder: Path
    admin: MySqlSourceSection
    process: subprocess.Popen[bytes] | None = None
    options: tuple[str, ...] = ()

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    _program("mariadbd"), *_SETTINGS, f"--user={getpass.getuser()}", f"--port={self.admin.port}",
                    f"--datadir={self.folder / 'data'}", f"--socket={self.folder / 'socket'}",
                    f"--pid-file={self.folder / 'pid'}", f"--init-file={self.folder / 'init.sql'}",
                    f"--tmpdir={self.folder / 'tmp'}", *self.options,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._wait()

    def _wait(self) -> None:
        ends = time.monotonic() + 300
        while time.monotonic() < ends:
            try:
                return open_as(self.admin).close()
            except pymysql.Error:
                if self.process is None or self.process.poll() is not None:
                    break
                time.sleep(0.1)
        self.kill()
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class MariaDatabase:
    """A database of its own: `config` is its owner, who may not see InnoDB's ids, `admin` may do everything, `reader`
    may read `config.database` and no more."""

    admin: MySqlSourceSection
    config: MySqlSourceSection
    reader: MySqlSourceSection

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        with (
            open_as(self.admin.model_copy(update={"database": self.config.database})) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)
            return list(cursor.fetchall())


def open_as(config: MySqlSourceSection) -> pymysql.Connection[Any]:
    return pymysql.connect(
        host=config.host, port=config.port, user=config.user, password=config.password.encode(),
        database=config.database, charset="utf8mb4", autocommit=True, ssl_disabled=True,
    )  # fmt: skip


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/usr/bin")
    if found:
        return found
    reason = f"{name} is not installed: apt-get install mariadb-server"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def launch(folder: Path, *options: str) -> MariaServer:
    """A new server in `folder`, started with these further options; its only user is `admin`."""
    (folder / "tmp").mkdir(parents=True, exist_ok=True)  # a starting server deletes what others have in a shared one
    install = [
        _program("mariadb-install-db"), "--no-defaults", "--skip-test-db", f"--user={getpass.getuser()}",
        f"--datadir={folder / 'data'}", f"--tmpdir={folder / 'tmp'}",
    ]  # fmt: skip
    _program("mariadbd")
    done = subprocess.run(install, capture_output=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(done.stdout.decode() + done.stderr.decode())
    secret = PASSWORD.replace("\\", "\\\\").replace("'", "''")
    statements = (
        "SET NAMES utf8mb4",
        "DROP USER IF EXISTS ''@'localhost'",
        f"CREATE OR REPLACE USER admin@'%' IDENTIFIED BY '{secret}'",
        "GRANT ALL ON *.* TO admin@'%' WITH GRANT OPTION",
    )
    (folder / "init.sql").write_text("".join(f"{statement};\n" for statement in statements))
    admin = MySqlSourceSection.resolved(
        type="mysql",
        host="127.0.0.1",
        database="mysql",
        user="admin",
        port=free_port(),
        password=PASSWORD,
        connect_timeout=30,
    )
    server = MariaServer(folder, admin, options=options)
    server.start()
    return server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaServer]:
    folder = Path(tempfile.mkdtemp(prefix="instep-maria-"))
    try:
        server = launch(folder / "server")
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def mariadb(mariadb_server: MariaServer) -> Iterator[MariaDatabase]:
    """A database for this test alone; its names and texts are compared byte by byte."""
    name = f"test_{next(_numbers)}"
    admin = mariadb_server.admin
    owner, reader = (
        admin.model_copy(update={"database": name, "user": f"{name}_{role}"}) for role in ("owner", "reader")
    )
    database = MariaDatabase(admin, owner, reader)
    with open_as(admin) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        for user, right in ((owner.user, "ALL"), (reader.user, "SELECT")):
            cursor.execute(f"CREATE USER {user}@'%%' IDENTIFIED BY %s", (PASSWORD,))
            cursor.execute(f"GRANT {right} ON {name}.* TO {user}@'%'")
    yield database
    with open_as(admin) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {name}")
        cursor.execute(f"DROP USER {owner.user}, {reader.user}")
