"""Reading PostgreSQL inside a task: Arrow over ADBC, in the snapshot that the driver exported.

A connection costs 30 ms in a small database and more in one with many types, because the driver reads pg_type
first: one connection per task, many chunks on it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.errors import ConnectError, InstepError, LockYielded, ReadError
from instep.project.sections.databases import PostgresSourceSection
from instep.sources.postgres.connect import LOCKED, dial, set_statement, translate
from instep.sources.postgres.locks import LANE, PAUSE, TASK, marking
from instep.sources.postgres.types import DIMENSIONS, literal
from instep.sources.server import in_time, is_over
from instep.stage.spec import Chunk, SourceLimits
from instep.stage.timeouts import CallTimeout, Silence, call_within

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 16 << 20
"""Measured from 1 to 64 MB a batch: equal but for 64 MB, which is slower; larger ones compress better."""


@dataclass(frozen=True)
class PostgresReader:
    """Reader of a task; picklable."""

    config: PostgresSourceSection
    settings: tuple[tuple[str, str], ...]
    snapshot: str = ""
    """The exported snapshot, "" where none can be shared."""
    key: int = 0
    """Key that identifies the sessions of the read point."""

    @property
    def limits(self) -> SourceLimits:
        return SourceLimits(self.config.max_connections, self.config.rows_per_second)

    @contextmanager
    def open(self) -> Iterator[PostgresReadSession]:
        """Open a connection with a transaction; raises ConnectError, or ReadError if the snapshot is gone."""
        import adbc_driver_manager
        import adbc_driver_postgresql.dbapi as adbc

        config = self.config
        limit = config.connect_timeout and config.read_timeout and max(config.connect_timeout, config.read_timeout)
        try:
            connection = dial(
                config, lambda info: call_within(limit, lambda: adbc.connect(info, autocommit=True), _close)
            )
        except adbc_driver_manager.Error as error:
            raise translate(config, str(error), error.sqlstate or "", otherwise=ConnectError) from None
        except Silence as error:
            raise translate(config, str(error), "") from None
        timeout = CallTimeout(self.config.read_timeout)
        try:
            self._begin(connection, timeout)
            yield PostgresReadSession(self.config, connection, timeout, shared=bool(self.snapshot))
        finally:
            with suppress(adbc_driver_manager.Error):
                timeout.close(connection.close)

    def _begin(self, connection: Any, timeout: CallTimeout) -> None:
        import adbc_driver_manager

        statements = ["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"]
        if self.snapshot:
            statements.append(f"SET TRANSACTION SNAPSHOT {literal(self.snapshot)}")
        role = marking(self.key, TASK if self.snapshot else LANE)
        statements += [f"{set_statement(dict(self.settings))}, {role}", f"SAVEPOINT {_BEFORE}"]

        def run() -> None:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)

        try:
            timeout.call(run)
        except adbc_driver_manager.Error as error:
            raise translate(self.config, str(error), error.sqlstate or "") from None
        except Silence as error:
            raise translate(self.config, str(error), "") from None


class PostgresReadSession:
    """One connection inside a task. `shared`: others have the same read point, so that its queries can be done again
    by one of them."""

    def __init__(self, config: PostgresSourceSection, connection: Any, timeout: CallTimeout, *, shared: bool) -> None:
        self._config, self._connection, self._timeout, self._shared = config, connection, timeout, shared

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield the chunk's rows; extension types are unwrapped to their storage (uuid: 16 bytes, json: string). No
        lock is kept behind a query; a piece is in memory before its rows are handed on."""
        import adbc_driver_manager
        import pyarrow as pa

        begun = time.monotonic()
        try:
            for query in (chunk.query,) if chunk.query else chunk.pieces:
                begun = time.monotonic()
                with closing(self._timeout.each(self._batches(query))) as batches:
                    rows = in_time(self._config, batches, chunk.table)
                    for batch in rows if chunk.query else [*rows]:
                        yield unwrap(batch)
        except (adbc_driver_manager.Error, pa.ArrowException, OSError, Silence) as error:
            sqlstate = getattr(error, "sqlstate", None) or ""
            if yielded := self._yielded(str(error), sqlstate, chunk, begun):
                raise yielded from None
            raise self._failure(str(error), sqlstate, chunk) from None

    def _batches(self, query: str) -> Generator[pa.RecordBatch, None, None]:
        """Yield batches. Closing early gives the session up: a later statement would wait for the end of the rows."""
        with self._connection.cursor(adbc_stmt_kwargs={_BATCH_OPTION: str(BATCH_BYTES)}) as cursor:
            self._execute(cursor, query)
            yield from cursor.fetch_record_batch()
        self._unlock()  # fails on a connection that was ended while it sent rows, which the driver takes for their end

    def _execute(self, cursor: Any, query: str) -> None:
        """Try again while another session has the table, without a lock that a third one could wait for."""
        import adbc_driver_manager

        begun = time.monotonic()
        while True:
            try:
                cursor.execute(query)
                return
            except adbc_driver_manager.Error as error:
                over = self._config.read_timeout and time.monotonic() - begun > self._config.read_timeout
                if error.sqlstate != LOCKED or over:
                    raise
                self._unlock()
            self._timeout.restart()
            time.sleep(PAUSE)

    def _unlock(self) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(f"ROLLBACK TO SAVEPOINT {_BEFORE}")

    def _yielded(self, text: str, sqlstate: str, chunk: Chunk, begun: float) -> LockYielded | None:
        """Return the error of a statement that was cancelled, or a connection that was ended, for somebody who waits.
        The connection is ready for another statement, if it is there."""
        import adbc_driver_manager

        ended = self._shared and (sqlstate == "57P01" or any(mark in text for mark in _ENDED))
        was_cancelled = sqlstate == "57014" or _CANCELLED in text
        cancelled = was_cancelled and "conflict with recovery" not in text and not is_over(self._config, begun)
        if not (ended or cancelled):
            return None
        error = LockYielded(
            f"{chunk.table}: given up again and again, because others wait for the table (ALTER TABLE, LOCK TABLE)",
            hint="sync again when they are done",
        )
        if ended and sqlstate != "57P01" and _TERMINATED not in text:
            error.closed = translate(self._config, text, sqlstate, chunk.table)
        try:
            self._timeout.call(self._unlock)
        except (adbc_driver_manager.Error, Silence):
            ended = True
        error.broken = ended
        return error

    def _failure(self, text: str, sqlstate: str, chunk: Chunk) -> InstepError:
        if DIMENSIONS in text:
            column = self._config.redacted(text.split(DIMENSIONS, 1)[1].split('"')[0].splitlines()[0])
            hint = "declare the column with its dimensions in the source (integer[][]), then it is read as json"
            return ReadError(f"{chunk.table}: column {column} holds an array of more than one dimension", hint=hint)
        if _TOO_LARGE.search(text):
            return self._too_large(text, chunk)
        return translate(self._config, text, sqlstate, chunk.table)

    def _too_large(self, text: str, chunk: Chunk) -> InstepError:
        """Return an error that names the largest row, which is looked up now, outside the snapshot."""
        import adbc_driver_manager

        row = None
        with suppress(adbc_driver_manager.Error), self._connection.cursor() as cursor:
            cursor.execute("ROLLBACK")
            if chunk.largest:
                cursor.execute(chunk.largest)
                row = cursor.fetchone()
        message = self._config.redacted(_server_message(text))
        where = f"; the largest, {row[0] or 'without a key'}, has {row[1] >> 20} MB" if row else ""
        return ReadError(
            f"{chunk.table}: a row is larger than the 1 GB that PostgreSQL sends at once{where} ({message})",
            hint="exclude its largest column, or the row with a row filter",
        )


def _server_message(text: str) -> str:
    return text.partition("ERROR:")[2].strip().splitlines()[0] if "ERROR:" in text else text.splitlines()[0]


def _close(connection: Any) -> None:
    connection.close()


_CANCELLED = "canceling statement due to user request"
_TERMINATED = "terminating connection"
_ENDED = (_TERMINATED, "server closed the connection unexpectedly")
_BEFORE = "instep_before"
"""The savepoint behind which a chunk is read: taking it back ends its locks."""
_TOO_LARGE = re.compile("exceeds maximum allowed length|invalid memory alloc request size|Cannot enlarge string buffer")
_BATCH_OPTION = "adbc.postgresql.batch_size_hint_bytes"


def unwrap(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with extension arrays replaced by their storage, without a copy."""
    import pyarrow as pa

    if not any(isinstance(field.type, pa.BaseExtensionType) for field in batch.schema):
        return batch
    columns = [c.storage if isinstance(c, pa.ExtensionArray) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
