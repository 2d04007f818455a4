"""Connections to the server, and transactions over it.

Every transaction says for itself what it needs (a pooler may give each one another session), has a lock timeout, and
notes its number: if the answer to its COMMIT is lost, the server is asked what became of it.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cached_property, partial
from typing import Any, ClassVar, Generic, TypeVar

import psycopg
import pyarrow as pa
from adbc_driver_manager.dbapi import Connection
from psycopg.pq import TransactionStatus

from instep.destinations.base import Commit, Ref, SparkStart
from instep.destinations.postgres.connect import (
    Arrow,
    PostgresServerConfig,
    answers,
    clear,
    conninfo,
    open_arrow,
    translated,
)
from instep.destinations.postgres.dependants import guards, index, unindex, unindexable
from instep.destinations.postgres.session import PostgresSession
from instep.destinations.postgres.shape import DIALECT
from instep.destinations.postgres.staging import PostgresStaging, remove_staging_tables
from instep.destinations.sql.database import SqlDatabase
from instep.destinations.sql.record_tables import require, require_readable
from instep.destinations.sql.records import Record
from instep.destinations.sql.session import Dialect, SqlSession
from instep.destinations.sql.staged import StagingArea
from instep.errors import ConnectError, InstepError
from instep.project.sections.values import as_text
from instep.schema.planning.guard import LayoutGuard
from instep.stage.timeouts import opened, timed_connection

T = TypeVar("T")
_REST = 1.0
"""Seconds after which a connection is asked whether it is still there."""


class Pool(Generic[T]):
    """`open` makes a connection, `close` ends it; `is_alive` asks the server."""

    def __init__(self, open: Callable[[], T], close: Callable[[T], object], is_alive: Callable[[T], bool]) -> None:
        self._open, self._close, self._is_alive = open, close, is_alive
        self._idle: list[tuple[float, T]] = []
        self._closed = 0
        self._lock = threading.Lock()

    @contextmanager
    def connection(self) -> Iterator[T]:
        """Take a connection for one thread; after an error, its own or another's meanwhile, it is not used again."""
        closed = self._closed
        connection = self._waiting() or self._open()
        try:
            yield connection
        except BaseException:
            self._end(connection)
            self.close()  # what has broken it may have broken all others
            raise
        if not self._put_back(connection, closed):
            self._end(connection)

    def _put_back(self, connection: T, closed: int) -> bool:
        """Keep a connection for the next, unless the pool was closed since it was taken."""
        with self._lock:
            if self._closed != closed:
                return False
            self._idle.append((time.monotonic(), connection))
        return True

    def _waiting(self) -> T | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, connection = self._idle.pop()
            if time.monotonic() - since < _REST or self._is_alive(connection):
                return connection
            self._end(connection)

    def _end(self, connection: T) -> None:
        with suppress(Exception):  # it may be broken, and what broke it is being told already
            self._close(connection)

    def close(self) -> None:
        """End those that nobody uses, and the others as soon as they are given back."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._closed += 1
        for _, connection in idle:
            self._end(connection)


_LOCK_TIMEOUT = 10.0
_POLL = 0.1
# A server that does not notice that its client is gone would keep its locks: hence the last four.
_SETTINGS: Mapping[str, str] = {
    "search_path": "pg_catalog",
    "standard_conforming_strings": "on",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "timezone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "row_security": "off",
    "idle_in_transaction_session_timeout": "10min",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}


class PostgresServer(SqlDatabase):
    """The server of a destination; its connections end with it. `part`: see `PostgresSession`."""

    kind: ClassVar[str] = "postgres"
    dialect: ClassVar[Dialect] = DIALECT
    config: PostgresServerConfig

    def __init__(self, config: PostgresServerConfig, part: tuple[str, str] | None = None) -> None:
        self.config = config
        self.part = part
        self._plain = Pool(partial(_open, config), _close_plain, _is_alive)
        self._arrow = Pool(partial(open_arrow, config), Arrow.close, answers)
        weakref.finalize(self, _close_all, self._plain, self._arrow)

    @cached_property
    def area(self) -> StagingArea:
        """Return the folder or bucket to which tasks write; ConnectError if that is neither a folder nor in a store."""
        return StagingArea.of(self.config.staging, as_text(self.config.properties), self.config.name)

    def translated(self) -> AbstractContextManager[None]:
        """Turn the errors of both drivers into ours."""
        return translated(self.config)

    @contextmanager
    def arrow(self) -> Iterator[Arrow]:
        """Open a connection that speaks Arrow, in its own transaction, rolled back unless it was committed."""
        with self.translated(), self._arrow.connection() as arrow:
            yield arrow
            arrow.call(arrow.connection.rollback)

    @contextmanager
    def reading(self) -> Iterator[PostgresSession]:
        """Open a transaction that sees one state of the server."""
        with self.translated(), self._plain.connection() as db:
            db.isolation_level, db.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
            db.execute(self._settings())
            yield PostgresSession(db, self.part)
            db.rollback()

    @contextmanager
    def writing(self) -> Iterator[PostgresSession]:
        """Open a transaction: all of it is committed or, if anything is raised, nothing."""
        with suppress(_ConnectionLost), self.translated(), self._plain.connection() as db:
            db.isolation_level, db.read_only = psycopg.IsolationLevel.READ_COMMITTED, False
            [(*_, number)] = db.execute(self._settings() + b", txid_current()").fetchall()
            yield PostgresSession(db, self.part)
            self._commit(db, int(number))

    def select(
        self, ref: Ref, sql: Callable[[SqlSession, Record], str], keys: tuple[str, pa.Table] | None = None
    ) -> tuple[Record, Iterator[pa.RecordBatch]]:
        """Run the query; its connection stays in use until the last batch is taken."""
        with self.reading() as session:
            record = require_readable(session, ref)
            statement = sql(session, record)

        def batches() -> Iterator[pa.RecordBatch]:
            with self.arrow() as arrow:
                if keys:
                    arrow.call(lambda: _ingest_keys(arrow.connection, *keys))
                with closing(arrow.rows(statement)) as rows:
                    yield from rows

        return record, batches()

    def staging(self, record: Record, commit: Commit, spark: SparkStart | None = None) -> PostgresStaging:
        return PostgresStaging(self, record, commit, spark)

    def guards(self, refs: Sequence[Ref]) -> dict[Ref, dict[str, tuple[LayoutGuard, ...]]]:
        """Return the columns that views, foreign keys and functions of others need."""
        with self.reading() as session:
            return guards(session, refs)

    def fitting(self, ref: Ref, attempt: Callable[[], T]) -> T:
        """Return the result of `attempt`; where rows do not fit the index on the key, it is retried with a plain
        index, or without one."""
        try:
            return attempt()
        except InstepError as error:
            if not (why := unindexable(error.__cause__)) or not self._loosen(ref, duplicates=why == "twins"):
                raise
        return attempt()

    def _loosen(self, ref: Ref, *, duplicates: bool) -> bool:
        with self.writing() as session:
            record, table = require(session, ref, lock=True), session.name(*ref)
            if not unindex(session, table):
                return False
            if duplicates:
                index(session, table, record.table.key, record.place, unique=False)
        return True

    def remove_staged(self, record: Record, fences: Iterable[int]) -> None:
        remove_staging_tables(self, record, fences)

    def _settings(self) -> bytes:
        values = {
            **_SETTINGS,
            "lock_timeout": f"{int(self.config.lock_timeout * 1000)}",
            "statement_timeout": f"{int(self.config.statement_timeout * 1000)}",
        }
        return ("SELECT " + ", ".join(f"set_config('{k}', '{v}', true)" for k, v in values.items())).encode()

    def _commit(self, db: psycopg.Connection[Any], number: int) -> None:
        """Commit; if the answer is lost, ask the server what became of the transaction."""
        try:
            db.commit()
        except psycopg.OperationalError as error:
            if db.info.transaction_status != TransactionStatus.UNKNOWN or not self._is_committed(number, error):
                raise
            raise _ConnectionLost from None

    def _is_committed(self, number: int, error: psycopg.Error) -> bool:
        """Return whether the transaction was committed; waits while nobody can tell."""
        until = time.monotonic() + max(_LOCK_TIMEOUT, self.config.lock_timeout)
        while time.monotonic() < until:
            with suppress(InstepError), self.reading() as session:
                [(status,)] = session.run("SELECT txid_status($1)", [number])
                if status != "in progress":
                    return bool(status == "committed")
            time.sleep(_POLL)
        raise ConnectError(
            f"{self.config.place}: the connection was cut while a commit was under way: {error}",
            hint="run this again: what was committed is found by its record",
        )


def _open(config: PostgresServerConfig) -> psycopg.Connection[Any]:
    try:
        with conninfo(config) as info:
            more: dict[str, Any] = {"prepare_threshold": None, "cursor_factory": psycopg.RawCursor}
            return opened(info, lambda to: timed_connection(config.read_timeout).connect(to, **more))
    except psycopg.Error as error:
        cleared = clear(config, str(error), error.sqlstate or "")
        raise ConnectError(cleared.message, hint=cleared.hint) from None


class _ConnectionLost(Exception):
    """The commit is done, its connection gone."""


def _ingest_keys(connection: Connection, name: str, keys: pa.Table) -> None:
    with connection.cursor() as cursor:
        cursor.adbc_ingest(name, keys, mode="create", temporary=True)


def _close_plain(connection: psycopg.Connection[Any]) -> None:
    connection.close()


def _is_alive(connection: psycopg.Connection[Any]) -> bool:
    try:
        connection.execute("SELECT 1")
        connection.rollback()
    except psycopg.Error:
        return False
    return True


def _close_all(*pools: Pool[Any]) -> None:
    for pool in pools:
        pool.close()
