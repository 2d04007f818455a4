"""Sources behind a real SSH server: rows come through, the host key is checked, nothing outlives the connection."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from instep.errors import ConnectError, ReadError, SetupError
from instep.project.sections.reach import SshSection
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import CursorRange, Source
from instep.sources.mysql.source import MySqlSource
from instep.sources.postgres.source import PostgresSource
from instep.sources.ssh import _running, explained
from mariadb import MariaDatabase
from postgres_server import Database
from ssh_server import SshServer, ssh_server


@pytest.fixture(scope="module")
def server() -> Iterator[SshServer]:
    with ssh_server() as running:
        yield running


def count(source: Source) -> int:
    """The rows of the only table, as a task reads them."""
    with source.snapshot() as snapshot:
        [table] = snapshot.discover().catalog.tables
        read = TableRead(table, table, tuple(ColumnRead(c, c) for c in table.columns))
        with pickle.loads(pickle.dumps(snapshot.reader)).open() as session:
            return sum(b.num_rows for c in snapshot.chunks(read, "t", CursorRange()) for b in session.read(c))


def children() -> list[psutil.Process]:
    """The ssh processes that this one has started and that still run."""
    found = []
    for process in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if process.name() == "ssh" and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def none_left() -> bool:
    ends = time.monotonic() + 300
    while children() and time.monotonic() < ends:
        time.sleep(0.05)
    return not children()


def test_postgres_is_read_through_ssh(postgres: Database, server: SshServer) -> None:
    postgres.execute("CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 1000) i")
    source = PostgresSource(postgres.config.model_copy(update={"ssh": server.ssh}))
    assert count(source) == 1000
    assert all(c.ok for c in source.test() if c.needed)
    assert none_left()


@pytest.mark.slow
def test_mysql_is_read_through_ssh(mariadb: MariaDatabase, server: SshServer) -> None:
    mariadb.execute("CREATE TABLE t (id int PRIMARY KEY)")
    mariadb.execute("INSERT INTO t VALUES (1), (2), (3)")
    source = MySqlSource(mariadb.config.model_copy(update={"ssh": server.ssh}))
    assert count(source) == 3
    assert none_left()


def test_no_secret_is_on_a_command_line_or_a_disk(postgres: Database, server: SshServer) -> None:
    source = PostgresSource(postgres.config.model_copy(update={"ssh": server.ssh}))
    with source.snapshot():
        said = " ".join(word for child in children() for word in child.cmdline())
    assert 'IdentityFile="/proc/' in said
    assert server.ssh.key.splitlines()[1] not in said
    assert postgres.config.password not in said


def known(tmp_path: Path, server: SshServer, key: str) -> SshSection:
    file = tmp_path / "100 %h" / "known_hosts"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"[127.0.0.1]:{server.ssh.port} {key}\n" if key else "")
    return server.ssh.model_copy(update={"host_key": "", "known_hosts": str(file)})


def test_a_file_of_known_hosts(postgres: Database, server: SshServer, tmp_path: Path) -> None:
    source = PostgresSource(postgres.config.model_copy(update={"ssh": known(tmp_path, server, server.ssh.host_key)}))
    assert source.discover().catalog.tables == ()
    source = PostgresSource(postgres.config.model_copy(update={"ssh": known(tmp_path, server, "")}))
    with pytest.raises(ConnectError, match="host key is not known"):
        source.discover()


OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
WRONG = [
    ("host key", {"host_key": OTHER}, "another host key|host key is not known", "host_key"),
    ("key", {"key": "stranger"}, "refuses this user and key", "authorized_keys"),
    ("no key", {"key": "not a key"}, "private key cannot be read|refuses this user and key", "ssh.key"),
    ("port", {"port": 1}, "nothing listens there", "ssh.port"),
    ("host", {"host": "no-such-host.invalid"}, "host is unknown", "ssh.host"),
]


@pytest.mark.parametrize(("change", "cause", "step"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_setting_is_named_with_the_next_step(
    postgres: Database, server: SshServer, change: dict[str, str], cause: str, step: str
) -> None:
    if change.get("key") == "stranger":
        change = {"key": server.stranger}
    ssh = server.ssh.model_copy(update=change)
    with pytest.raises(ConnectError, match=cause) as told:
        PostgresSource(postgres.config.model_copy(update={"ssh": ssh})).discover()
    assert step in told.value.hint
    assert ssh.place in told.value.message
    assert server.ssh.key not in str(told.value)
    assert none_left()


def test_a_database_that_the_ssh_server_cannot_reach(postgres: Database, server: SshServer) -> None:
    with pytest.raises(ConnectError, match=r"cannot reach 127\.0\.0\.1:1 ") as told:
        PostgresSource(postgres.config.model_copy(update={"ssh": server.ssh, "port": 1})).discover()
    assert "as they are seen from the SSH server" in told.value.hint
    with pytest.raises(ConnectError, match="wrong user or password"):
        PostgresSource(postgres.config.model_copy(update={"ssh": server.ssh, "password": "wrong"})).discover()


@pytest.mark.slow
def test_a_server_that_forbids_forwarding(postgres: Database) -> None:
    with ssh_server("AllowTcpForwarding no") as closed, pytest.raises(ConnectError, match="does not allow forwarding"):
        PostgresSource(postgres.config.model_copy(update={"ssh": closed.ssh})).discover()


@pytest.mark.slow
def test_a_tunnel_that_ends_in_mid_read_fails_and_the_next_one_works(postgres: Database, server: SshServer) -> None:
    postgres.execute("CREATE TABLE t AS SELECT i AS id, repeat('x', 1000) AS pad FROM generate_series(1, 100000) i")
    source = PostgresSource(postgres.config.model_copy(update={"ssh": server.ssh}))
    with ExitStack() as stack:
        snapshot = stack.enter_context(source.snapshot())
        [table] = snapshot.discover().catalog.tables
        for child in children():
            child.kill()
        with pytest.raises((ReadError, ConnectError)):
            snapshot.count(TableRead(table, table, tuple(ColumnRead(c, c) for c in table.columns)))
    assert count(source) == 100_000


KILLED = """
import pickle, sys, time
from instep.sources.postgres.source import PostgresSource
source = PostgresSource(pickle.load(sys.stdin.buffer))
with source.snapshot():
    print("open", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_the_tunnel_ends_with_a_process_that_is_killed(postgres: Database, server: SshServer) -> None:
    config = postgres.config.model_copy(update={"ssh": server.ssh})
    child = subprocess.Popen([sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(pickle.dumps(config))
    child.stdin.close()
    assert child.stdout.readline() == b"open\n"
    tunnels = [p for p in psutil.Process(child.pid).children() if p.name() == "ssh"]
    assert tunnels
    child.kill()
    child.wait()
    child.stdout.close()
    with suppress(psutil.NoSuchProcess):
        assert psutil.wait_procs(tunnels, timeout=300)[1] == []


def test_without_the_program(postgres: Database, server: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SetupError, match="ssh is not installed"):
        PostgresSource(postgres.config.model_copy(update={"ssh": server.ssh})).discover()


def test_what_ssh_says_is_kept_where_it_is_not_known() -> None:
    error = explained(SshSection(host="h", user="me"), "db:1", "kex_exchange: strange\r\n")
    assert error.message == "me@h:22: ssh failed: kex_exchange: strange"
    assert error.hint
    assert all(child.poll() is not None for child in _running)
