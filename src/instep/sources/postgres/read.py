"""Reading PostgreSQL inside a task: Arrow over ADBC, in the snapshot that the driver exported.

A connection costs 30 ms in a small database and more in one with many types, because the driver reads pg_type
first: one connection per task, many chunks on it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.errors import ConnectError, InstepError, ReadError
from instep.sources.postgres.connect import PostgresConfig, dial, set_statement, translate
from instep.sources.postgres.sql import literal
from instep.sources.postgres.types import DIMENSIONS
from instep.stage.patience import Patience, Silence, within
from instep.stage.spec import Chunk, Limits

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 16 << 20
"""Measured from 1 to 64 MB a batch: equal but for 64 MB, which is slower; larger ones compress better."""


@dataclass(frozen=True)
class PostgresReader:
    """What a task needs; picklable. `snapshot` is the exported snapshot, "" where none can be shared."""

    config: PostgresConfig
    settings: tuple[tuple[str, str], ...]
    snapshot: str = ""

    @property
    def limits(self) -> Limits:
        return Limits(self.config.max_connections, self.config.rows_per_second)

    @contextmanager
    def open(self) -> Iterator[PostgresReadSession]:
        """One connection with its transaction open; raises ConnectError, or ReadError if the snapshot is gone."""
        import adbc_driver_manager
        import adbc_driver_postgresql.dbapi as adbc

        config = self.config
        limit = config.connect_timeout and config.read_timeout and max(config.connect_timeout, config.read_timeout)
        try:
            connection = dial(config, lambda info: within(limit, lambda: adbc.connect(info, autocommit=True)))
        except adbc_driver_manager.Error as error:
            raise translate(config, str(error), error.sqlstate or "", otherwise=ConnectError) from None
        except Silence as error:
            raise translate(config, str(error), "") from None
        patience = Patience(self.config.read_timeout)
        try:
            self._begin(connection, patience)
            yield PostgresReadSession(self.config, connection, patience)
        finally:
            with suppress(adbc_driver_manager.Error):
                patience.close(connection.close)

    def _begin(self, connection: Any, patience: Patience) -> None:
        import adbc_driver_manager

        statements = ["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"]
        if self.snapshot:
            statements.append(f"SET TRANSACTION SNAPSHOT {literal(self.snapshot)}")
        statements.append(set_statement(dict(self.settings)))

        def run() -> None:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)

        try:
            patience.call(run)
        except adbc_driver_manager.Error as error:
            raise translate(self.config, str(error), error.sqlstate or "") from None
        except Silence as error:
            raise translate(self.config, str(error), "") from None


class PostgresReadSession:
    """One connection inside a task."""

    def __init__(self, config: PostgresConfig, connection: Any, patience: Patience) -> None:
        self._config, self._connection, self._patience = config, connection, patience

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """The chunk's rows; extension types are unwrapped to their storage (uuid: 16 bytes, json: string)."""
        import adbc_driver_manager
        import pyarrow as pa

        try:
            with closing(self._patience.each(self._batches(chunk.query))) as batches:
                for batch in self._config.in_time(batches, chunk.table):
                    yield unwrap(batch)
        except adbc_driver_manager.Error as error:
            raise self._failure(str(error), error.sqlstate or "", chunk) from None
        except (pa.ArrowException, OSError, Silence) as error:
            raise self._failure(str(error), "", chunk) from None

    def _batches(self, query: str) -> Generator[pa.RecordBatch, None, None]:
        with self._connection.cursor(adbc_stmt_kwargs={_BATCH_OPTION: str(BATCH_BYTES)}) as cursor:
            cursor.execute(query)
            yield from cursor.fetch_record_batch()

    def _failure(self, text: str, sqlstate: str, chunk: Chunk) -> InstepError:
        if DIMENSIONS in text:
            column = self._config.told(text.split(DIMENSIONS, 1)[1].split('"')[0].splitlines()[0])
            hint = "declare the column with its dimensions in the source (integer[][]), then it is read as json"
            return ReadError(f"{chunk.table}: column {column} holds an array of more than one dimension", hint=hint)
        if _TOO_LARGE.search(text):
            return self._too_large(text, chunk)
        return translate(self._config, text, sqlstate, chunk.table)

    def _too_large(self, text: str, chunk: Chunk) -> InstepError:
        """Names the largest row, which is looked for now, without the snapshot."""
        import adbc_driver_manager

        row = None
        with suppress(adbc_driver_manager.Error), self._connection.cursor() as cursor:
            cursor.execute("ROLLBACK")
            if chunk.largest:
                cursor.execute(chunk.largest)
                row = cursor.fetchone()
        said = self._config.told(_server_said(text))
        where = f"; the largest, {row[0] or 'without a key'}, has {row[1] >> 20} MB" if row else ""
        return ReadError(
            f"{chunk.table}: a row is larger than the 1 GB that PostgreSQL sends at once{where} ({said})",
            hint="exclude its largest column, or the row with a row filter",
        )


def _server_said(text: str) -> str:
    return text.partition("ERROR:")[2].strip().splitlines()[0] if "ERROR:" in text else text.splitlines()[0]


_TOO_LARGE = re.compile("exceeds maximum allowed length|invalid memory alloc request size|Cannot enlarge string buffer")
_BATCH_OPTION = "adbc.postgresql.batch_size_hint_bytes"


def unwrap(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with extension arrays replaced by their storage, without a copy."""
    import pyarrow as pa

    if not any(isinstance(field.type, pa.BaseExtensionType) for field in batch.schema):
        return batch
    columns = [c.storage if isinstance(c, pa.ExtensionArray) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
