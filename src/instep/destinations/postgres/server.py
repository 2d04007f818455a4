"""Connections to the server, and transactions over it.

Every transaction says for itself what it needs (a pooler may give each one another session), has a lock timeout, and
notes its number: if the answer to its COMMIT is lost, the server is asked what became of it.

Arrow over the server's connection. The driver has no clock of its own: whoever waits for it waits with a timeout.
"""

from __future__ import annotations

import os
import re
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar, Generic, Literal, TypeVar

import psycopg
import pyarrow as pa
from adbc_driver_manager import Error as ArrowError
from adbc_driver_manager.dbapi import Connection
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from instep.destinations.base import Commit, Ref
from instep.destinations.postgres.dependants import guards, index, unindex, unindexable
from instep.destinations.postgres.session import PostgresSession
from instep.destinations.postgres.shape import DIALECT
from instep.destinations.postgres.staging import PostgresStaging, remove_staging_tables
from instep.destinations.sql.database import SqlDatabase
from instep.destinations.sql.record_tables import require, require_readable
from instep.destinations.sql.records import Record
from instep.destinations.sql.session import Dialect, SqlSession
from instep.destinations.sql.staged import StagingArea
from instep.errors import Conflict, ConnectError, DestinationError, InstepError, SchemaError
from instep.project.sections.models import PostgresDestinationSection
from instep.project.sections.reach import VERIFY
from instep.project.sections.values import as_text
from instep.schema.planning.guard import LayoutGuard
from instep.stage.timeouts import (
    ENDLESS,
    LIBPQ,
    SILENT,
    CallTimeout,
    Silence,
    opened,
    proof_of_password,
    timed_connection,
)

T = TypeVar("T")
_REST = 1.0
"""Seconds after which a connection is asked whether it is still there."""


class Pool(Generic[T]):
    """`open` makes a connection, `close` ends it; `is_alive` asks the server."""

    def __init__(self, open: Callable[[], T], close: Callable[[T], object], is_alive: Callable[[T], bool]) -> None:
        self._open, self._close, self._is_alive = open, close, is_alive
        self._idle: list[tuple[float, T]] = []
        self._lock = threading.Lock()

    @contextmanager
    def take(self) -> Iterator[T]:
        """A connection for one thread; one that something was raised over is not used again."""
        connection = self._waiting() or self._open()
        try:
            yield connection
        except BaseException:
            self._end(connection)
            self.close()  # what has broken it may have broken those that wait
            raise
        with self._lock:
            self._idle.append((time.monotonic(), connection))

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
        """End those that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            self._end(connection)


APPLICATION = "instep"
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


class PostgresServerConfig(PostgresDestinationSection):
    """A destination's server under the `name` that the project file has for it, which its staged files are below."""

    type: Literal["postgres"] = "postgres"
    name: str


@contextmanager
def conninfo(config: PostgresServerConfig) -> Iterator[str]:
    """libpq keywords, the password among them: stays inside the process, is never logged. The client's key is in a
    file in memory as long as this lasts."""
    checked = config.tls.chosen in VERIFY and not config.tls.ca
    with os.fdopen(os.memfd_create("instep"), "wb", buffering=0) as key:
        os.fchmod(key.fileno(), 0o600)
        key.write(config.tls.key.encode())
        given: dict[str, Any] = {
            "host": config.host,
            "port": config.port,
            "dbname": config.database,
            "user": config.user,
            "password": config.password,
            "sslmode": config.tls.chosen,
            "sslrootcert": ssl.get_default_verify_paths().cafile if checked else config.tls.ca,
            "sslcert": config.tls.cert,
            "sslkey": f"/proc/self/fd/{key.fileno()}" if config.tls.key else "",
            "connect_timeout": config.connect_timeout,
            "require_auth": proof_of_password(config.tls.chosen, config.host),
        }
        options = {k: v for k, v in given.items() if v not in ("", 0, None)}
        yield make_conninfo("", **options, **LIBPQ, application_name=APPLICATION, client_encoding="UTF8")


class PostgresServer(SqlDatabase):
    """The server of a destination; its connections end with it. `part`: see `PostgresSession`."""

    kind: ClassVar[str] = "postgres"
    dialect: ClassVar[Dialect] = DIALECT
    config: PostgresServerConfig

    def __init__(self, config: PostgresServerConfig, part: tuple[str, str] | None = None) -> None:
        self.config = config
        self.part = part
        self._plain = Pool(partial(_open, config), _close_plain, _is_alive)
        self._arrow = Pool(partial(_open_arrow, config), Arrow.close, answers)
        weakref.finalize(self, _close_all, self._plain, self._arrow)

    @cached_property
    def area(self) -> StagingArea:
        """Return the folder or bucket to which tasks write; ConnectError if that is neither a folder nor in S3."""
        made = StagingArea.of(self.config.staging, as_text(self.config.properties))
        return replace(made, uri=f"{made.uri}/{self.config.name}")

    def translated(self) -> AbstractContextManager[None]:
        """Turn the errors of both drivers into ours."""
        return _translated(self.config)

    @contextmanager
    def arrow(self) -> Iterator[Arrow]:
        """A connection that speaks Arrow, in a transaction of its own, rolled back unless it was committed."""
        with self.translated(), self._arrow.take() as arrow:
            yield arrow
            arrow.call(arrow.connection.rollback)

    @contextmanager
    def reading(self) -> Iterator[PostgresSession]:
        """One transaction that sees one state of the server."""
        with self.translated(), self._plain.take() as db:
            db.isolation_level, db.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
            db.execute(self._settings())
            yield PostgresSession(db, self.part)
            db.rollback()

    @contextmanager
    def writing(self) -> Iterator[PostgresSession]:
        """One transaction: all of it or, if anything is raised, nothing."""
        with suppress(_Lost), self.translated(), self._plain.take() as db:
            db.isolation_level, db.read_only = psycopg.IsolationLevel.READ_COMMITTED, False
            [(*_, number)] = db.execute(self._settings() + b", txid_current()").fetchall()
            yield PostgresSession(db, self.part)
            self._commit(db, int(number))

    def select(
        self, ref: Ref, sql: Callable[[SqlSession, Record], str], keys: tuple[str, pa.Table] | None = None
    ) -> tuple[Record, Iterator[pa.RecordBatch]]:
        """A connection stays in use until the last batch is taken."""
        with self.reading() as session:
            record = require_readable(session, ref)
            statement = sql(session, record)

        def batches() -> Iterator[pa.RecordBatch]:
            with self.arrow() as arrow:
                if keys:
                    arrow.call(lambda: _ingest_keys(arrow.connection, *keys))
                with closing(arrow.rows(statement)) as found:
                    yield from found

        return record, batches()

    def staging(self, record: Record, commit: Commit) -> PostgresStaging:
        return PostgresStaging(self, record, commit)

    def guards(self, refs: Sequence[Ref]) -> dict[Ref, dict[str, tuple[LayoutGuard, ...]]]:
        """Return the columns that views, foreign keys and functions of others need."""
        with self.reading() as session:
            return guards(session, refs)

    def fitting(self, ref: Ref, attempt: Callable[[], T]) -> T:
        """Return what `attempt` returns; where rows do not fit the index on the key, it is tried with an index that
        allows for them, or without one."""
        try:
            return attempt()
        except InstepError as error:
            if not (why := unindexable(error.__cause__)) or not self._loosen(ref, twins=why == "twins"):
                raise
        return attempt()

    def _loosen(self, ref: Ref, *, twins: bool) -> bool:
        with self.writing() as session:
            record, table = require(session, ref, lock=True), session.name(*ref)
            if not unindex(session, table):
                return False
            if twins:
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
        """If the answer is lost, the server is asked what became of the transaction."""
        try:
            db.commit()
        except psycopg.OperationalError as error:
            if db.info.transaction_status != TransactionStatus.UNKNOWN or not self._became(number, error):
                raise
            raise _Lost from None

    def _became(self, number: int, error: psycopg.Error) -> bool:
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


@contextmanager
def _translated(config: PostgresServerConfig) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise clear(config, str(error), error.sqlstate or "") from error
    except ArrowError as error:
        raise clear(config, str(error), error.sqlstate or "") from None
    except Silence as error:
        raise clear(config, str(error), "") from None


def _open(config: PostgresServerConfig) -> psycopg.Connection[Any]:
    try:
        with conninfo(config) as info:
            more: dict[str, Any] = {"prepare_threshold": None, "cursor_factory": psycopg.RawCursor}
            return opened(info, lambda given: timed_connection(config.read_timeout).connect(given, **more))
    except psycopg.Error as error:
        found = clear(config, str(error), error.sqlstate or "")
        raise ConnectError(found.message, hint=found.hint) from None


def _open_arrow(config: PostgresServerConfig) -> Arrow:
    with _translated(config), conninfo(config) as info:
        return opened(info, lambda given: open_arrow(given, config.read_timeout))


class _Lost(Exception):
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


_CONNECT = (
    ("password authentication failed|no password supplied", "check the destination's user and password"),
    ('database ".*" does not exist', "check the destination's database ({c.database})"),
    ("could not translate|failed to resolve|not known", "check the destination's host ({c.host})"),
    ("Connection refused|No such file", "check host and port, and that PostgreSQL runs and listens there"),
    (
        f"timeout expired|connection timeout|{ENDLESS}|No route|unreachable",
        "check host and firewall, or raise connect_timeout",
    ),
    (
        "requested a cleartext password",
        "give the server TLS and set tls.mode to require, or have it ask for scram-sha-256",
    ),
    ("no pg_hba.conf entry", "add a pg_hba.conf entry, or set tls.mode"),
    ("does not support SSL", "set tls.mode to prefer or disable"),
    ("certificate verify failed|root certificate", "set tls.ca to the authority of the certificate, if that is valid"),
    ("does not match host", "set host to a name that the certificate has, or tls.mode to verify-ca"),
    ("SSL", "see tls.mode, tls.cert and tls.key, and the server's log"),
    ("too many clients|remaining connection slots", "raise max_connections on the server"),
    (SILENT, "see what the server is at, then run this again; raise read_timeout if it needs longer"),
    (
        "the database system is|terminating connection|closed the connection|connection is lost"
        "|the connection is closed",
        "the server has closed the connection: wait until it is up, then run this again",
    ),
)
_STATES: tuple[tuple[str, type[InstepError], str], ...] = (
    ("55P03", Conflict, "another session holds the table: end it (see pg_stat_activity), or raise lock_timeout"),
    ("40", Conflict, "another session was faster: run this again"),
    ("42501", DestinationError, "grant {c.user} the right; `instep destination test` shows which are missing"),
    ("25006", DestinationError, "this server is read-only: connect to the primary"),
    ("2BP01", DestinationError, "drop what depends on it first: nothing is dropped in cascade"),
    ("42701", SchemaError, "give the column an alias: PostgreSQL keeps that name for itself"),
    ("42939", SchemaError, "choose another namespace: PostgreSQL keeps names that begin with pg_ for itself"),
    ("54", DestinationError, "PostgreSQL has no room for this: exclude the column, or hash it"),
    ("53100", DestinationError, "free disk space on the server, then run this again"),
    ("57014", DestinationError, "raise statement_timeout if it needs longer"),
)


def clear(config: PostgresServerConfig, text: str, sqlstate: str) -> InstepError:
    """Return the error for one of the server's (`sqlstate`) or of the driver's; without the password."""
    masked = _first_line(text.replace(config.password, "***") if config.password else text)
    for state, kind, hint in _STATES:
        if sqlstate.startswith(state):
            return kind(f"{config.place}: {masked}", hint=hint.format(c=config))
    for mark, hint in _CONNECT:
        if re.search(mark, masked):
            return ConnectError(f"{config.place}: {masked}", hint=hint.format(c=config))
    if sqlstate.startswith(("08", "28", "3D", "53", "57")):
        return ConnectError(f"{config.place}: {masked}", hint="see the server's log")
    return DestinationError(f"{config.place}: {masked}", hint="try again; if it fails again, see the server's log")


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = next((found for found in lines if "FATAL" in found or "ERROR" in found), lines[0] if lines else "")
    return re.sub(r"^.*?(?=(ERROR|FATAL): )", "", line)


class Arrow:
    """A connection; what uses it is called through `call`, which raises Silence."""

    def __init__(self, connection: Connection, timeout: CallTimeout) -> None:
        self.connection, self._timeout = connection, timeout

    def call(self, act: Callable[[], T]) -> T:
        return self._timeout.call(act)

    def rows(self, sql: str) -> Generator[pa.RecordBatch, None, None]:
        """Return what a query answers."""
        return self._timeout.each(self._batches(sql))

    def _batches(self, sql: str) -> Generator[pa.RecordBatch, None, None]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            yield from cursor.fetch_record_batch()

    def append(self, schema: str, table: str, rows: pa.RecordBatchReader) -> None:
        """COPY of the rows into a table that is there; committed. A batch that is taken is a word of the server."""

        def watched() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                self._timeout.restart()
                yield batch

        def copy() -> None:
            with self.connection.cursor() as cursor:
                taken = pa.RecordBatchReader.from_batches(rows.schema, watched())
                cursor.adbc_ingest(table, taken, mode="append", db_schema_name=schema)
                self.connection.commit()

        self.call(copy)

    def close(self) -> None:
        self._timeout.close(self.connection.close)


def open_arrow(info: str, silence: float) -> Arrow:
    """`info`: libpq keywords. `silence`: how many seconds the server may say nothing, 0: for ever."""
    from adbc_driver_postgresql import dbapi

    return Arrow(dbapi.connect(info), CallTimeout(silence))


def answers(arrow: Arrow) -> bool:
    """Return whether the server is still there."""

    def ask() -> None:
        with arrow.connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchall()
        arrow.connection.rollback()

    try:
        arrow.call(ask)
    except (ArrowError, Silence):
        return False
    return True
