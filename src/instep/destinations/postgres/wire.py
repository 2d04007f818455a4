"""Arrow over the server's connection. The driver has no clock of its own: whoever waits for it waits with patience."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

import pyarrow as pa
from adbc_driver_manager import Error as ArrowError
from adbc_driver_manager.dbapi import Connection

from instep.stage.timeouts import Patience, Silence

T = TypeVar("T")


class Arrow:
    """A connection; what uses it is called through `call`, which raises Silence."""

    def __init__(self, connection: Connection, patience: Patience) -> None:
        self.connection, self._patience = connection, patience

    def call(self, act: Callable[[], T]) -> T:
        return self._patience.call(act)

    def rows(self, sql: str) -> Generator[pa.RecordBatch, None, None]:
        """Return what a query answers."""
        return self._patience.each(self._batches(sql))

    def _batches(self, sql: str) -> Generator[pa.RecordBatch, None, None]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            yield from cursor.fetch_record_batch()

    def append(self, schema: str, table: str, rows: pa.RecordBatchReader) -> None:
        """COPY of the rows into a table that is there; committed. A batch that is taken is a word of the server."""

        def watched() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                self._patience.restart()
                yield batch

        def copy() -> None:
            with self.connection.cursor() as cursor:
                taken = pa.RecordBatchReader.from_batches(rows.schema, watched())
                cursor.adbc_ingest(table, taken, mode="append", db_schema_name=schema)
                self.connection.commit()

        self.call(copy)

    def close(self) -> None:
        self._patience.close(self.connection.close)


def open_arrow(info: str, silence: float) -> Arrow:
    """`info`: libpq keywords. `silence`: how many seconds the server may say nothing, 0: for ever."""
    from adbc_driver_postgresql import dbapi

    return Arrow(dbapi.connect(info), Patience(silence))


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
