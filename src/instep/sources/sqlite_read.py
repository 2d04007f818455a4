"""Reading chunks of a SQLite file into Arrow batches, inside a task."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from instep.errors import ReadError
from instep.schema.types import Binary, DataType, Float, Int, parse
from instep.sources.sqlite_connect import FileState, SqliteConfig, describing, file_state, transaction
from instep.stage.spec import Chunk

BATCH_ROWS = 65_536
_FETCH_ROWS = 2_048


class BadText(bytes):
    """Text that is not UTF-8."""


@dataclass(frozen=True)
class SqliteReader:
    """Opens the file as `state` describes it; raises ReadError when it has moved since."""

    config: SqliteConfig
    state: FileState

    @contextmanager
    def open(self) -> Iterator[SqliteSession]:
        with transaction(self.config) as connection:
            self._check(file_state(connection, self.config.path))
            yield SqliteSession(connection, self.config.path)

    def _check(self, now: FileState) -> None:
        if now != self.state:
            what = "its tables were altered" if now.schema_version != self.state.schema_version else "it was changed"
            raise ReadError(
                f"SQLite file {self.config.path}: {what} or replaced after this sync had read its schema",
                hint="nothing was loaded from it: sync again",
            )


@dataclass
class SqliteSession:
    """One connection with an open read transaction."""

    connection: sqlite3.Connection
    path: str

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Batches of 65,536 rows. Each column of the query is named by the type that it yields.

        Text that is not UTF-8 makes the driver fail, and looking at each text costs time: only then the query
        runs again, decoding text by text, past the rows that were already given.
        """
        given = 0
        with describing(self.path, ReadError, f"reading {chunk.table}"):
            try:
                for batch in self._batches(chunk.query, BATCH_ROWS):
                    given += batch.num_rows
                    yield batch
            except sqlite3.OperationalError as error:
                if "decode to UTF-8" not in str(error):
                    raise
                self.connection.text_factory = _lenient
                yield from self._batches(chunk.query, BATCH_ROWS, skip=given)
            finally:
                self.connection.text_factory = str

    def _batches(self, query: str, size: int, skip: int = 0) -> Iterator[pa.RecordBatch]:
        cursor = self.connection.execute(query)
        types = [parse(column[0]) for column in cursor.description]
        names = [str(position) for position in range(len(types))]
        while columns := _fetch(cursor, len(types), size):
            taken = columns if not skip else [values[skip:] for values in columns]
            skip = max(0, skip - len(columns[0]))
            if taken[0]:
                yield pa.RecordBatch.from_arrays([_array(k, v) for k, v in zip(types, taken, strict=True)], names)


def _fetch(cursor: sqlite3.Cursor, width: int, size: int) -> list[list[Any]]:
    """Up to `size` rows as columns, empty at the end. Rows are turned into columns while they are still in the
    processor's cache and before the garbage collector looks at them: twice as fast as all at once."""
    columns: list[list[Any]] = [[] for _ in range(width)]
    while len(columns[0]) < size and (rows := cursor.fetchmany(min(_FETCH_ROWS, size))):
        for values, part in zip(columns, zip(*rows, strict=True), strict=True):
            values.extend(part)
    return columns if columns[0] else []


def _lenient(text: bytes) -> str | BadText:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return BadText(text)


def _array(kind: DataType, values: Sequence[Any]) -> pa.Array:
    if isinstance(kind, Int):
        return pa.array(values, pa.int64())
    if isinstance(kind, Float):
        return pa.array(values, pa.float64())
    return _binary(values) if isinstance(kind, Binary) else _string(values)


_EXACT: dict[type, Callable[[Sequence[Any]], pa.Array]] = {
    str: lambda values: pa.array(values, pa.string()),
    int: lambda values: pa.array(values, pa.int64()).cast(pa.string()),
    float: lambda values: pa.array(values, pa.float64()).cast(pa.string()),
    type(None): lambda values: pa.nulls(len(values), pa.string()),
}


def _string(values: Sequence[Any]) -> pa.Array:
    """Values of any storage class as text; a column of one class is converted at once."""
    classes = set(map(type, values))
    if len(classes) > 1:
        classes.discard(type(None))
    if len(classes) == 1 and (convert := _EXACT.get(classes.pop())):
        return convert(values)
    if classes == {int, float}:
        return pa.array([value if value is None else repr(value) for value in values], pa.string())
    return pa.array([None if value is None else text(value) for value in values], pa.string())


def text(value: Any) -> str:
    r"""The exact text form of a value; bytes and bad text as `\x` and hex digits."""
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return repr(value) if isinstance(value, float) else str(value)


def _binary(values: Sequence[Any]) -> pa.Array:
    """Bytes; values of other storage classes become the bytes of their text, as SQLite's CAST does."""
    if set(map(type, values)) <= {bytes, type(None)}:
        return pa.array(values, pa.binary())
    return pa.array([_bytes(value) for value in values], pa.binary())


def _bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else text(value).encode()
