"""What goes wrong with a PostgreSQL server, and what a person is told."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress

import psycopg
import pytest

from events.shows import shows
from instep.errors import AccessDenied, ConnectError, InstepError, ProjectError, ReadError, SchemaError
from instep.project.sections.databases import PostgresSourceSection
from instep.project.sections.reach import Tls
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import CursorRange
from instep.sources.postgres.chunks import CHUNK_BYTES, HeapStorage, parts
from instep.sources.postgres.connect import connect
from instep.sources.postgres.read import PostgresReader
from instep.sources.postgres.snapshot import PostgresSnapshot, export
from instep.sources.postgres.source import PostgresSource
from postgres_server import PASSWORD, READER, Database, Server, free_port, launch, make_database

WRONG: list[tuple[str, Callable[[PostgresSourceSection], PostgresSourceSection], str, str]] = [
    ("password", lambda c: c.model_copy(update={"password": "not it"}), "wrong user or password", "password"),
    ("no password", lambda c: c.model_copy(update={"password": ""}), "asks for a password", "password"),
    ("user", lambda c: c.model_copy(update={"user": "nobody"}), "wrong user or password", "user"),
    (
        "host",
        lambda c: c.model_copy(update={"host": "no-such-host.invalid"}),
        "host is unknown",
        "no-such-host.invalid",
    ),
    ("port", lambda c: c.model_copy(update={"port": free_port()}), "nothing listens there", "port"),
    ("database", lambda c: c.model_copy(update={"database": "absent"}), "has no such database", "database"),
    ("certificate", lambda c: c.model_copy(update={"tls": Tls.resolved(mode="require")}), "has no TLS", "tls.mode"),
]


@pytest.mark.parametrize(("change", "cause", "step"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
@pytest.mark.parametrize("through", ["driver", "task", "test"])
def test_a_wrong_setting_is_named_with_the_next_step(
    postgres: Database,
    change: Callable[[PostgresSourceSection], PostgresSourceSection],
    cause: str,
    step: str,
    through: str,
) -> None:
    config = change(postgres.config)
    if through == "test":
        failed = [c for c in PostgresSource(config).test() if not c.ok]
        assert len(failed) == 1
        assert step in failed[0].hint + failed[0].detail
        return
    with pytest.raises(ConnectError, match=cause) as told:
        _connect(config, through)
    assert told.value.exit_code == 4
    assert step in told.value.hint
    assert config.place in str(told.value)
    assert not config.password or config.password not in str(told.value)


def _connect(config: PostgresSourceSection, through: str) -> None:
    if through == "driver":
        PostgresSource(config).fingerprint()
    else:
        with PostgresReader(config, ()).open():
            pass


def test_secrets_are_in_no_text(postgres: Database) -> None:
    source = PostgresSource(postgres.config)
    with source.snapshot() as snapshot:
        texts = [repr(source), repr(source.config), repr(snapshot.reader), repr(snapshot), source.config.place]
    assert not any(PASSWORD in t for t in texts)


@pytest.fixture
def table(postgres: Database) -> Database:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY, secret text, free text)")
    postgres.execute("INSERT INTO t VALUES (1, 'x', 'y')")
    return postgres


def read_of(snapshot: PostgresSnapshot, name: str = "t") -> TableRead:
    found = snapshot.discover().catalog.by_ref["public", name]
    return TableRead(found, found, tuple(ColumnRead(c, c) for c in found.columns))


def run(snapshot: PostgresSnapshot, read: TableRead) -> int:
    chunks = snapshot.chunks(read, "public.t", CursorRange())
    with pickle.loads(pickle.dumps(snapshot.reader)).open() as session:
        return sum(b.num_rows for c in chunks for b in session.read(c))


def test_a_grant_lost_before_the_read_is_access_lost(table: Database) -> None:
    with PostgresSource(table.reader).snapshot() as snapshot:
        read = read_of(snapshot)
        table.execute(f"REVOKE ALL ON t FROM {READER}")
        with pytest.raises(AccessDenied, match=r"public\.t: can no longer be read") as told:
            run(snapshot, read)
        assert READER in told.value.hint
        with pytest.raises(AccessDenied):
            snapshot.count(read)


def test_denied_columns_and_schemas_are_named_with_the_grant(table: Database) -> None:
    table.execute(f"REVOKE ALL ON t FROM {READER}")
    table.execute(f"GRANT SELECT (id, free) ON t TO {READER}")
    table.execute("CREATE SCHEMA hidden CREATE TABLE inside (id int); REVOKE ALL ON hidden.inside FROM reader")
    found = PostgresSource(table.reader).discover()
    usage, select = 'GRANT USAGE ON SCHEMA "hidden" TO "reader";', 'GRANT SELECT ON "hidden"."inside" TO "reader";'
    assert found.denied == {
        ("public", "t", "secret"): 'GRANT SELECT ("secret") ON "public"."t" TO "reader";',
        ("hidden", "inside"): f"{usage} {select}",
    }
    assert [c.name for c in found.catalog.by_ref["public", "t"].columns] == ["id", "secret", "free"]
    hint = next(c.hint for c in PostgresSource(table.reader).test() if c.name == "privileges")
    for statement in filter(None, hint.split(";")):
        table.execute(statement)
    assert PostgresSource(table.reader).discover().denied == {}


def test_a_table_dropped_before_the_read_is_said_to_have_changed(table: Database) -> None:
    with PostgresSource(table.config).snapshot() as snapshot:
        read = read_of(snapshot)
        table.execute("ALTER TABLE t RENAME COLUMN free TO other")
        with pytest.raises(ReadError, match=r"public\.t: changed while it was being read"):
            run(snapshot, read)
        table.execute("DROP TABLE t")
        with pytest.raises(ReadError, match=r"public\.t: changed while it was being read"):
            run(snapshot, read)


def test_a_bad_regular_expression_is_an_error_of_the_project(postgres: Database) -> None:
    with pytest.raises(ProjectError, match="pattern"):
        PostgresSource(postgres.config.model_copy(update={"include": ("re:(",)})).discover()


@shows(event=63)
def test_a_statement_that_takes_too_long_is_cancelled(table: Database) -> None:
    table.execute("CREATE VIEW slow AS SELECT pg_sleep(60)::text AS s")
    with PostgresSource(table.config.model_copy(update={"statement_timeout": 3})).snapshot() as snapshot:
        with pytest.raises(ReadError, match="statement timeout") as told:
            run(snapshot, read_of(snapshot, "slow"))
        assert "statement_timeout" in told.value.hint


def _read_all(*reads: Iterable[object]) -> None:
    for batches in reads:
        list(batches)


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory, postgres_server: Server) -> Iterator[Server]:
    """A server of this test's own, which it may end."""
    server = launch(postgres_server.folder.parent / tmp_path_factory.mktemp("own").name)
    with ExitStack() as ended:
        ended.callback(lambda: server.stop() if server.runs() else None)
        yield server


def test_a_server_killed_in_mid_read_is_a_read_error(own_server: Server) -> None:
    database = make_database(own_server, "doomed")
    database.execute("CREATE TABLE t AS SELECT i AS id, repeat('x', 1000) AS pad FROM generate_series(1, 200000) i")
    with PostgresSource(database.config).snapshot() as snapshot:
        chunks = snapshot.chunks(read_of(snapshot), "public.t", CursorRange())
        with snapshot.reader.open() as session:
            batches = session.read(chunks[0])
            assert next(batches).num_rows
            own_server.kill()
            with pytest.raises((ReadError, ConnectError), match=r"public\.t"):
                _read_all(batches, *map(session.read, chunks[1:]))  # buffers on the way may hold all of the first
    with pytest.raises(ConnectError):
        PostgresSource(database.config).fingerprint()


@pytest.mark.parametrize("met", ["by the read", "by the watch over its locks"])
def test_each_statement_after_the_server_s_last_word_says_that_word(table: Database, met: str) -> None:
    with PostgresSource(table.config).snapshot() as snapshot:
        [found] = snapshot.discover().catalog.tables
        read = TableRead(found, found, tuple(ColumnRead(c, c) for c in found.columns))
        with snapshot._watch.turn:
            table.execute(f"SELECT pg_terminate_backend({snapshot._connection.info.backend_pid})")
            _wait_for_the_end(table, snapshot)
            if met == "by the watch over its locks":
                with suppress(psycopg.Error):
                    snapshot._connection.execute("SELECT 1")
        for _ in range(3):
            with pytest.raises(ReadError, match=r"public\.t: terminating connection due to administrator command"):
                snapshot.count(read)


def _wait_for_the_end(table: Database, snapshot: PostgresSnapshot) -> None:
    """The session's last word is on its way once the server does not list it any more."""
    asked = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {snapshot._connection.info.backend_pid}"  # noqa: S608
    while table.execute(asked) != [(0,)]:
        time.sleep(0.05)


def test_an_ended_snapshot_is_refused_not_replaced(table: Database) -> None:
    with PostgresSource(table.config).snapshot() as snapshot:
        reader = snapshot.reader
    with pytest.raises(InstepError, match="snapshot"), reader.open():
        pass


def test_where_no_snapshot_can_be_exported_all_is_read_in_one_lane(table: Database) -> None:
    with connect(table.config) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1/0")
        exported, note = export(table.config, connection)
        assert (exported, "aborted" in note) == ("", True)
        snapshot = PostgresSnapshot(table.config, connection, exported, note)
        read = read_of(snapshot)
        assert {c.lane for c in snapshot.chunks(read, "k", CursorRange())} == {"snapshot"}
        assert run(snapshot, read) == snapshot.count(read) == 1


def test_without_the_system_identifier_no_ids_are_given(table: Database) -> None:
    table.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    found = PostgresSource(table.reader).discover()
    assert (found.identity, found.proves_absence) == ("", False)
    assert found.catalog.by_ref["public", "t"].id is None
    hint = next(c.hint for c in PostgresSource(table.reader).test() if c.name == "identity")
    table.execute(hint)
    assert PostgresSource(table.reader).discover().proves_absence


@shows(event=67)
def test_row_security_is_noted(table: Database) -> None:
    table.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    assert not next(c for c in PostgresSource(table.reader).test() if c.name == "row security").ok
    assert next(c for c in PostgresSource(table.config).test() if c.name == "row security").ok


def test_a_lookback_needs_a_number_or_a_time(table: Database) -> None:
    with (
        PostgresSource(table.config).snapshot() as snapshot,
        pytest.raises(SchemaError, match=r"public\.t\.free: text has no lookback"),
    ):
        snapshot.cursor_bounds(read_of(snapshot), "free", "a", 5)


def test_cutting_is_by_rows_and_bytes_and_never_more_than_pages() -> None:
    def count(rows: int, size: int, pages: int = 100_000, version: int = 180_000) -> int:
        return len(parts([HeapStorage("t", "r", True, True, False, pages, size, rows / max(pages, 1))], version))

    assert [count(r, 1) for r in (0, 200_000, 300_000, 1_000_000, 5_000_000, 20_000_000)] == [1, 1, 2, 4, 8, 20]
    assert count(10, 10 * CHUNK_BYTES) == 10
    assert (count(1_000_000, 1, pages=2), count(1_000_000, 1, pages=0)) == (2, 1)
    assert count(1_000_000, 1, version=130_000) == 1
