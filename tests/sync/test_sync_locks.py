"""No session of an application waits for a lock of ours, whatever a sync is at."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from instep.errors import ReadError
from instep.project.sections.databases import MySqlSourceSection
from instep.project.sections.tables import TableSettings
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import CursorRange
from instep.sources.mysql.read import MySqlReader, MySqlSession
from instep.sources.mysql.source import MySqlSnapshot
from instep.sources.postgres import chunks, locks
from instep.sources.postgres import snapshot as postgres_snapshot
from instep.sources.postgres.connect import conninfo
from instep.sources.postgres.read import PostgresReadSession
from instep.sources.postgres.snapshot import PostgresSnapshot
from instep.sources.postgres.source import PostgresSource
from instep.sources.sqlite.read import SqliteSession
from instep.sources.sqlite.source import SqliteSnapshot, SqliteSource
from instep.stage.task import task_count
from instep.sync.loading.engine import LocalEngine
from instep.sync.schema_changes.key_counts import count_key
from lock_phases import Phases
from sync_world import MakeWorld, World, cursor, preset

ROWS = 40_000
PLANNED = ("discover", "chunks", "cursor_bounds", "count", "filter_error", "changed_tables")
MODES: dict[str, tuple[TableSettings, set[str]]] = {
    "whole": (TableSettings(), {"discover", "chunks", "amid read", "read", "changed_tables"}),
    "cursor": (cursor("v", filter="v >= 0"), {"cursor_bounds", "filter_error", "amid read", "later amid read"}),
    "keyless": (TableSettings(mode="full_refresh"), {"amid read"}),
}


def with_connections(world: World, most: int) -> World:
    """The world whose syncs may have so many connections at a time."""
    plain = world.case

    def source(**options: Any) -> Any:
        made: Any = plain.source(**options)
        return type(made)(made.config.model_copy(update={"max_connections": most}))

    world.case = replace(plain, source=source)
    return world


def lock_table(world: World, table: str = "t") -> Callable[[], None]:
    """What an application does that changes a table: nobody else may have it meanwhile."""
    import psycopg

    config: Any = world.context.source.config  # type: ignore[attr-defined]

    def act() -> None:
        with psycopg.connect(conninfo(config)) as connection:
            connection.execute("SET lock_timeout = '300s'")
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
            connection.execute(f"ALTER TABLE {table} ALTER v SET NOT NULL".encode())

    return act


def filled(world: World, *more: str, key: bool = True) -> World:
    kind = "int PRIMARY KEY" if key else "int"
    world.run(
        f"CREATE TABLE t (id {kind}, v int NOT NULL, word text)",
        f"INSERT INTO t SELECT n, n % 1000, repeat('x', 1000) FROM generate_series(1, {ROWS}) n",  # noqa: S608
        *more,
    )
    return world


def interrupted(world: World, monkeypatch: pytest.MonkeyPatch) -> Phases:
    phases = Phases(monkeypatch, lock_table(world))
    phases.behind(PostgresSnapshot, *PLANNED)
    phases.behind(PostgresSource, "discover", "fingerprint")
    phases.amid(PostgresReadSession, "read")
    return phases


def equal(world: World) -> None:
    assert world.differing() == {}


@pytest.mark.sampled
@pytest.mark.parametrize("mode", MODES)
def test_a_table_is_free_in_every_phase_of_a_sync(
    make_world: MakeWorld, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, expected = MODES[mode]
    world = filled(make_world(), "CREATE VIEW w AS SELECT id, v FROM t", key=mode != "keyless")
    world.settings["t"] = settings
    with monkeypatch.context() as patch:
        phases = interrupted(world, patch)
        assert (report := world.sync()).status == "done", report.tables
        world.run("UPDATE t SET v = v + 5000 WHERE id % 3 = 0", "DELETE FROM t WHERE id = 7")
        assert (report := world.sync()).status == "done", report.tables
    assert phases.met.keys() >= expected, phases.met
    equal(world)


def test_a_table_is_free_while_columns_are_filled_and_while_it_is_compared(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = filled(make_world())
    world.settings["t"], world.policy = cursor("v"), preset("allow_all", backfill="column")
    world.sync()
    world.run("ALTER TABLE t ADD more int DEFAULT 5")
    with monkeypatch.context() as patch:
        phases = interrupted(world, patch)
        report = world.sync()
        assert "filled in" in " ".join(report.notes)
        phases.met.clear()
        equal(world)
        assert phases.met.keys() >= {"discover", "chunks"}
        phases.met.clear()
        world.preview()
        assert phases.met.keys() & {"discover", "fingerprint"}
        phases.met.clear()
        table = world.accepted("t")
        assert count_key(world.context, table, table, ("id",), ("id",), LocalEngine()).source.unique
        assert phases.met.keys() >= {"chunks", "amid read"}


REWRITES = {
    "the same type": "ALTER TABLE t ALTER v TYPE int USING v * 10",
    "another type": "ALTER TABLE t ALTER v TYPE bigint",
    "no row left": "TRUNCATE t",
    "the same rows": "VACUUM FULL t",
    "without a column": "ALTER TABLE t DROP word",
}
SAMPLE = {("the same type", "chunks"), ("no row left", "amid read"), ("without a column", "discover")}
PAIRS = [
    pytest.param(rewrite, phase, marks=() if (rewrite, phase) in SAMPLE else pytest.mark.slow)
    for rewrite in REWRITES
    for phase in ("discover", "chunks", "amid read")
]


@pytest.mark.sampled
@pytest.mark.parametrize(("rewrite", "phase"), PAIRS)
def test_rows_that_are_written_anew_while_they_are_read_are_read_again(
    make_world: MakeWorld, rewrite: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older read point shows nothing of them."""
    world = filled(make_world())
    world.sync()
    world.run("UPDATE t SET v = v + 1")
    done: list[str] = []

    def act() -> None:
        if not done:
            done.append(phase)
            world.run(REWRITES[rewrite])

    with monkeypatch.context() as patch:
        phases = Phases(patch, act)
        phases.behind(PostgresSnapshot, *({phase} & set(PLANNED)))
        if phase == "amid read":
            phases.amid(PostgresReadSession, "read")
        assert (report := world.sync()).status == "done", report.tables
    assert done
    world.sync()
    equal(world)


def test_a_long_statement_of_the_planner_gives_way(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than anybody should wait, until somebody has waited."""
    import psycopg

    world = filled(make_world())
    world.settings["t"] = cursor("v")
    slow = (
        "SELECT max(v)::text, 0 FROM public.t WHERE pg_try_advisory_xact_lock_shared(77) OR pg_sleep(0.01) IS NOT NULL"
    )
    monkeypatch.setattr(postgres_snapshot, "bounds_statement", lambda *given: slow)
    started, done = threading.Event(), threading.Event()
    config: Any = world.context.source.config  # type: ignore[attr-defined]

    def apply() -> None:
        with psycopg.connect(conninfo(config), autocommit=True) as connection:
            connection.execute("SELECT pg_advisory_lock(77)")
            started.set()
            sleeping = b"SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
            while connection.execute(sleeping).rowcount == 0:
                pass
            lock_table(world)()
            done.set()

    application = threading.Thread(target=apply)
    application.start()
    assert started.wait(600)
    assert (report := world.sync()).status == "done", report.tables
    application.join()
    assert done.is_set()
    equal(world)


def test_who_keeps_a_table_locked_is_named_after_a_limited_wait(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the server may be silent for ever: a session that has forgotten its transaction never ends."""
    import psycopg

    monkeypatch.setattr(locks, "LONGEST", 0.5)
    world = make_world()
    world.run("CREATE TABLE t (id int PRIMARY KEY, v int DEFAULT 1)")
    source: Any = world.context.source
    source = type(source)(source.config.model_copy(update={"read_timeout": 0}))
    with psycopg.connect(conninfo(source.config), application_name="forgotten") as other:
        other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(ReadError, match="another session keeps it locked") as caught, source.snapshot() as snapshot:
            snapshot.discover()
        process = other.info.backend_pid
    assert f"; public.t is locked by process {process} (forgotten, idle in transaction)" in caught.value.message


def test_pieces_yield_the_rows_of_their_chunk(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "PIECE", 1 << 20)
    world = filled(make_world())
    world.run("DELETE FROM t WHERE id % 7 = 0", "CREATE TABLE empty (id int)")
    with world.context.source.snapshot() as snapshot:
        tables = {t.name: t for t in snapshot.discover().catalog.tables}
        for name, most in (("t", 100), ("empty", 1)):
            read = TableRead(tables[name], tables[name], tuple(ColumnRead(c, c) for c in tables[name].columns))
            found = snapshot.chunks(read, name, CursorRange())
            with snapshot.reader.open() as session:
                whole = sum(len(b) for chunk in found for b in session.read(chunk))
                pieces = sum(len(b) for chunk in found for b in session.read(replace(chunk, query="")))
            assert whole == pieces == (0 if name == "empty" else ROWS - ROWS // 7)
            assert 1 <= sum(len(chunk.pieces) for chunk in found) <= most


@pytest.mark.parametrize(("most", "readers"), [(2, 1), (3, 1), (4, 1), (5, 2), (9, 4)])
def test_those_who_watch_count_among_the_connections(most: int, readers: int) -> None:
    config = MySqlSourceSection.resolved(type="mysql", host="h", database="d", user="u", max_connections=most)
    assert task_count(MySqlReader(config).limits, 8, 8) == readers
    assert 1 + readers * (1 if most == 2 else 2) <= most


def maria_act(world: World) -> Callable[[], None]:
    def act() -> None:
        world.run("SET STATEMENT lock_wait_timeout = 300 FOR ALTER TABLE t COMMENT = 'wanted'")

    return act


@pytest.mark.sampled
@pytest.mark.parametrize(("mode", "connections"), [("whole", 0), ("cursor", 0), ("whole", 3)])
def test_a_table_of_mariadb_is_free_in_every_phase_of_a_sync(
    make_world: MakeWorld, mode: str, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for a lock on its definition holds up whatever comes behind."""
    world = with_connections(make_world("mysql"), connections)
    world.settings["t"] = cursor("v") if mode == "cursor" else TableSettings()
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL, word text) COMMENT = 'wanted'",
        "INSERT INTO t SELECT seq, seq % 1000, repeat('x', 1000) FROM seq_1_to_100000",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "INSERT INTO u VALUES (1)",
    )
    with monkeypatch.context() as patch:
        phases = Phases(patch, maria_act(world))
        phases.behind(MySqlSnapshot, "discover", "chunks", "cursor_bounds", "count", "changed_tables")
        phases.amid(MySqlSession, "read")
        assert (report := world.sync()).status == "done", report.tables
        world.run("UPDATE t SET v = v + 5000 WHERE id % 3 = 0", "DELETE FROM t WHERE id = 7")
        assert (report := world.sync()).status == "done", report.tables
    assert phases.met.keys() >= {"discover", "chunks", "amid read", "changed_tables"}, phases.met
    equal(world)


@pytest.mark.sampled
@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("mode", MODES)
def test_a_sqlite_file_is_free_in_every_phase_of_a_sync(
    make_world: MakeWorld, mode: str, journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes to a file with a rollback journal waits for all who read it."""
    world = make_world("sqlite")
    config: Any = world.context.source.config  # type: ignore[attr-defined]
    world.settings["t"] = MODES[mode][0]
    key = "" if mode == "keyless" else "PRIMARY KEY"
    world.run(
        f"PRAGMA journal_mode = {journal}",
        f"CREATE TABLE t (id INTEGER {key}, v int NOT NULL, word text)",
        "INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) "
        "SELECT i, i % 1000, 'x' FROM n",
    )

    def write() -> None:
        with closing(sqlite3.connect(config.path, timeout=60, isolation_level=None)) as application:
            application.execute("UPDATE t SET word = word || 'x' WHERE id = 1")

    with monkeypatch.context() as patch:
        phases = Phases(patch, write)
        phases.behind(SqliteSnapshot, *PLANNED[1:])
        phases.behind(SqliteSource, "discover", "fingerprint")
        phases.amid(SqliteSession, "read")
        assert (report := world.sync()).status == "done", report.tables
        world.run("UPDATE t SET v = v + 5000 WHERE id % 3 = 0", "DELETE FROM t WHERE id = 7")
        assert (report := world.sync()).status == "done", report.tables
    assert phases.met.keys() >= {"chunks", "changed_tables", "amid read", "read"}, phases.met
    world.run("UPDATE t SET v = v + 10000 WHERE id = 1")
    world.sync()
    equal(world)
