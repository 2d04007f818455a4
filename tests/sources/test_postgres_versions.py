"""The versions of PostgreSQL's tables: what they tell, and of what they tell nothing."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from instep.sources.base import CursorRange
from instep.sources.postgres.connect import conninfo
from instep.sources.postgres.source import PostgresSource
from instep.sources.postgres.versions import GENUINE, ReadPoint
from postgres_server import Database, Server, launch, make_database
from source_reads import accept

Versions = dict[tuple[str, str], str]
MAJOR = int(os.environ.get("POSTGRES_MAJOR", "18"))


def versions(database: Database, before: Versions | None = None) -> Versions:
    with PostgresSource(database.config).snapshot() as snapshot:
        return snapshot.versions([accept(t) for t in snapshot.discover().catalog.tables], before or {})


@pytest.mark.parametrize(
    "make",
    [
        "CREATE VIEW v AS SELECT now()::text AS a",
        "CREATE TABLE v (id int) PARTITION BY RANGE (id)",
        "CREATE UNLOGGED TABLE v (id int)",
        "CREATE TYPE m AS ENUM ('a'); CREATE TABLE v (id m)",
        "CREATE DOMAIN d AS int; CREATE TABLE v (id d)",
        "CREATE TABLE v (id regclass)",
        "CREATE TABLE v (id int); ALTER TABLE v ENABLE ROW LEVEL SECURITY",
        "CREATE TABLE v (id int); CREATE TABLE below () INHERITS (v)",
    ],
)
def test_what_row_versions_do_not_tell(postgres: Database, make: str) -> None:
    postgres.execute(make)
    postgres.execute("CREATE TABLE t (id int, tags text[], n numeric)")
    assert versions(postgres).keys() - {("public", "below")} == {("public", "t")}


ON = "on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0-14+deb12u1) 12.2.0, 64-bit"


@pytest.mark.parametrize(
    ("text", "genuine"),
    [
        (f"PostgreSQL 15.18 (Debian 15.18-0+deb12u1) {ON}", True),
        (f"PostgreSQL 18.1 {ON}", True),
        (
            "PostgreSQL 17.2 on aarch64-apple-darwin23, compiled by Apple clang version 15.0.0 (clang-1500.3), 64-bit",
            True,
        ),
        ("PostgreSQL 16.1, compiled by Visual C++ build 1937, 64-bit", True),
        (f"PostgreSQL 11.2-YB-2.19.0.0-b0 {ON}", False),
        (f"PostgreSQL 15.2-YB-2025.1.0.0-b0 {ON}", False),
        ("CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27, go1.19.10)", False),
        ("PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2, Redshift 1.0.58558", False),
        (f"PostgreSQL 12.12 (Greenplum Database 7.0.0 build commit:a) {ON}", False),
        (f"PostgreSQL 12.12 (Greenplum Database 7.0.0) {ON} compiled on Sep 1 2023", False),
        (f"PostgreSQL 15.2 (EnterpriseDB Advanced Server 15.2.0) {ON}", False),
        ("PostgreSQL 9.5 on x86_64-unknown-linux-gnu (Materialize 0.130.0)", False),
        ("PostgreSQL 14.10 (PolarDB 14.10.18.0 build c4a) on x86_64-linux-gnu, compiled by gcc, 64-bit", False),
        ("13.3", False),
        ("", False),
    ],
)
def test_only_postgresql_itself_is_trusted(text: str, genuine: bool) -> None:
    assert bool(GENUINE.fullmatch(text)) == genuine


def test_what_is_made_of_postgresql_tells_nothing(postgres: Database) -> None:
    postgres.execute("CREATE TABLE t (id int)")
    assert versions(postgres)
    postgres.execute("CREATE FUNCTION aurora_version() RETURNS text LANGUAGE sql AS $$SELECT '15.4'$$")
    assert versions(postgres) == {}


def test_a_server_without_the_functions_tells_nothing(postgres: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres.execute("CREATE TABLE t (id int)")
    monkeypatch.setattr("instep.sources.postgres.versions._POINT", "SELECT there_is_no_such_function()")
    with PostgresSource(postgres.config).snapshot() as snapshot:
        reads = [accept(t) for t in snapshot.discover().catalog.tables]
        assert snapshot.versions(reads, {}) == {}
        assert snapshot.chunks(reads[0], "", CursorRange()), "the read point is as it was"


def test_two_reads_of_one_snapshot_s_numbers_are_not_confused() -> None:
    one = ReadPoint("s", "10:12:10", "2:5")
    assert ReadPoint("s", "20:20:", "2:5").has_rows_of(one)
    assert not ReadPoint("s", "20:20:", "2:6").has_rows_of(one)
    assert not ReadPoint("r", "20:20:", "2:5").has_rows_of(one), "another start of the server"
    assert not ReadPoint("s", "5:5:", "2:5").has_rows_of(one), "a server that was put back"
    assert not ReadPoint("s", f"20:{12 + (1 << 31)}:", "2:5").has_rows_of(one), "numbers that may have come again"
    assert not ReadPoint("s", "20:20:", "").has_rows_of(ReadPoint("s", "10:10:", ""))


def test_a_version_stays_while_others_write(postgres: Database) -> None:
    postgres.execute("CREATE TABLE t (id int); CREATE TABLE u (id int)")
    known = versions(postgres)
    assert versions(postgres, known) == known
    postgres.execute("INSERT INTO u VALUES (1)")
    now = versions(postgres, known)
    assert now["public", "t"] == known["public", "t"]
    assert now["public", "u"] != known["public", "u"]


def test_of_a_large_table_only_the_transactions_tell(postgres: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.sources.postgres.snapshot.SMALL", 0)
    postgres.execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1); CREATE TABLE u (id int)")
    known = versions(postgres)
    assert versions(postgres, known) == known
    postgres.execute("INSERT INTO u VALUES (1)")
    assert versions(postgres, known)["public", "t"] != known["public", "t"]


def test_a_table_that_others_have_is_left_out(postgres: Database) -> None:
    postgres.execute("CREATE TABLE t (id int)")
    catalog = PostgresSource(postgres.config).discover().catalog
    with psycopg.connect(conninfo(postgres.config)) as other:
        other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        with PostgresSource(postgres.config).snapshot() as snapshot:
            [(_, found)] = snapshot.versions([accept(t) for t in catalog.tables], {}).items()
    assert found.endswith("|"), "its row versions are not told"


def test_rows_that_were_cut_off_after_the_read_point_prove_nothing(postgres: Database) -> None:
    postgres.execute("CREATE TABLE t (id int)")
    known = versions(postgres)
    postgres.execute("INSERT INTO t VALUES (1)")
    with PostgresSource(postgres.config).snapshot() as snapshot:
        reads = [accept(t) for t in snapshot.discover().catalog.tables]
        postgres.execute("TRUNCATE t")
        assert snapshot.versions(reads, known) == {}


@pytest.fixture
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="instep-versions-"))
    folder.chmod(0o755)
    launched = launch(folder / "server", MAJOR)
    try:
        yield launched
    finally:
        if launched.runs():
            launched.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("how", ["restart", "crash of a backend", "crash"])
def test_a_version_ends_with_the_server(server: Server, how: str) -> None:
    """A crash may have lost transactions, whose numbers come again."""
    database = make_database(server, "d")
    database.execute("CREATE TABLE t (id int)")
    known = versions(database)
    assert versions(database, known) == known
    if how == "crash of a backend":
        with psycopg.connect(conninfo(database.config)) as connection:
            os.kill(connection.info.backend_pid, signal.SIGKILL)
            wait_until_answered(database.execute)
    else:
        server.kill() if how == "crash" else server.stop()
        server.start()
    now = versions(database, known)
    assert now.keys() == known.keys()
    assert now != known


def test_a_copy_that_was_put_back_numbers_other_rows_alike(server: Server) -> None:
    database = make_database(server, "d")
    database.execute("CREATE TABLE t (id int)")
    data, copy = server.folder / "data", server.folder / "copy"
    server.run("pg_ctl", "-w", "-m", "fast", "-D", data, "stop")
    server.run("/bin/cp", "-a", data, copy)
    found = []
    for value in (1, 2):
        server.start()
        database.execute("INSERT INTO t VALUES (%s)", value)
        found.append(versions(database, {("public", "t"): found[0]} if found else None)["public", "t"])
        server.stop()
        server.run("/bin/rm", "-r", data)
        server.run("/bin/mv", copy, data) if value == 1 else None
    one, other = (ReadPoint(*text.split("|")) for text in found)
    assert one.rows == other.rows, "as they are numbered, they are the same"
    assert found[0] != found[1]


def wait_until_answered(execute: Callable[[str], object]) -> None:
    for _ in range(600):
        time.sleep(0.1)
        try:
            execute("SELECT 1")
        except psycopg.Error:
            continue
        return
    raise AssertionError("the server does not come back")
