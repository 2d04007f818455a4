"""A real standby as the source's replica: one snapshot over its tasks, and conflicts with its replay."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest

from instep.errors import ConnectError, ReadError
from instep.project.sections.databases import PostgresSourceSection
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import CursorRange
from instep.sources.postgres.snapshot import PostgresSnapshot
from instep.sources.postgres.source import PostgresSource
from postgres_server import PASSWORD, SUPERUSER, Database, Server, free_port

pytestmark = pytest.mark.slow


@pytest.fixture
def standby(postgres_server: Server) -> Iterator[Server]:
    """A copy of the session's server that follows it, and cancels what holds its replay up at once."""
    folder = postgres_server.folder.parent / "standby"
    folder.mkdir()
    owner = postgres_server.folder.stat()
    shutil.chown(folder, owner.st_uid, owner.st_gid)
    place = f"host=127.0.0.1 port={postgres_server.port} user={SUPERUSER} password='{PASSWORD}'"
    copy = ("-D", folder / "data", "-d", place, "-R", "-X", "stream", "-c", "fast", "--no-sync")
    postgres_server.run("pg_basebackup", *copy)
    with (folder / "data" / "postgresql.auto.conf").open("a") as settings:
        settings.write("max_standby_streaming_delay = 0\nmax_standby_archive_delay = 0\n")
    server = Server(folder, postgres_server.programs, free_port(), postgres_server.major)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.fixture
def table(postgres: Database) -> Database:
    postgres.execute("CREATE TABLE t AS SELECT i AS id, repeat('x', 100) AS pad FROM generate_series(1, 5000) i")
    return postgres


def at(database: Database, standby: Server) -> PostgresSourceSection:
    """The configuration that reads from the standby, once that has the table."""
    config = database.config.model_copy(update={"read_replica": (f"127.0.0.1:{standby.port}",)})
    ends = time.monotonic() + 300
    while time.monotonic() < ends:
        try:
            if PostgresSource(config).discover().catalog.tables:
                return config
        except ConnectError:
            pass
        time.sleep(0.1)
    raise AssertionError("the standby does not follow")


def read_of(snapshot: PostgresSnapshot) -> TableRead:
    [table] = snapshot.discover().catalog.tables
    return TableRead(table, table, tuple(ColumnRead(c, c) for c in table.columns))


def test_a_standby_is_read_in_one_snapshot_under_the_primary_s_ids(table: Database, standby: Server) -> None:
    config = at(table, standby)
    with PostgresSource(config).snapshot() as snapshot:
        read = read_of(snapshot)
        assert (snapshot.note, snapshot.reader.config.port) == ("", standby.port)
        with snapshot.reader.open() as session:
            assert sum(b.num_rows for c in snapshot.chunks(read, "t", CursorRange()) for b in session.read(c)) == 5000
        assert snapshot.discover().identity == PostgresSource(table.config).discover().identity
    found = next(c for c in PostgresSource(config).test() if c.name == "standby")
    assert (found.ok, found.needed) == (False, False)
    assert found.hint.startswith("ALTER SYSTEM SET hot_standby_feedback = on;")


def count_until_cancelled(snapshot: PostgresSnapshot, read: TableRead) -> None:
    for _ in range(3000):
        snapshot.count(read)
        time.sleep(0.1)


def test_a_read_that_holds_up_the_replay_is_named_with_the_next_step(table: Database, standby: Server) -> None:
    config = at(table, standby)
    with PostgresSource(config).snapshot() as snapshot:
        read = read_of(snapshot)
        table.execute("DELETE FROM t")
        table.execute("VACUUM t")
        with pytest.raises(ReadError, match="standby cancelled the read") as told:
            count_until_cancelled(snapshot, read)
    assert "hot_standby_feedback" in told.value.hint
