"""Reading chunks of a SQLite file into Arrow batches, inside a task."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa

from instep.errors import ReadError
from instep.project.sections.sources import SqliteSourceSection
from instep.schema.catalog.types import Binary, DataType, Float, Int, Json, String, Uuid, parse
from instep.sources.sqlite.connect import DatabaseFileState, describing, file_state, transaction
from instep.stage.spec import Chunk

BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
"""Texts and bytes of a batch: with more of them it has fewer rows."""
_FETCH_ROWS = 2_048
_FETCH_BYTES = 1 << 20
_GROWTH = 8


class BadText(bytes):
    """Text that is not UTF-8."""


_SIZED = frozenset({str, bytes, BadText})


@dataclass(frozen=True)
class SqliteReader:
    """Opens the file as `state` describes it, and raises ReadError when it has moved since; or its `copy`, which nobody
    writes to."""

    config: SqliteSourceSection
    state: DatabaseFileState
    copy: str = ""

    @contextmanager
    def open(self) -> Iterator[SqliteSession]:
        with transaction(self.config.model_copy(update={"path": self.copy or self.config.path})) as connection:
            if not self.copy:
                self._check(file_state(connection, self.config.path))
            yield SqliteSession(connection, self.config.path)

    def _check(self, now: DatabaseFileState) -> None:
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
        """Yield batches of 65,536 rows, or of 16 MB. Each column of the query is named by its declared type. Text
        that is not UTF-8 makes the driver fail, and checking each text costs time: only then the query runs again,
        decoding text by text, past the rows that were already yielded."""
        rows_read = 0
        with describing(self.path, ReadError, f"reading {chunk.table}"):
            try:
                for batch in self._batches(chunk.query, BATCH_ROWS):
                    rows_read += batch.num_rows
                    yield batch
            except sqlite3.OperationalError as error:
                if "decode to UTF-8" not in str(error):
                    raise
                self.connection.text_factory = _lenient
                yield from self._batches(chunk.query, BATCH_ROWS, skip=rows_read)
            finally:
                self.connection.text_factory = str

    def _batches(self, query: str, size: int, skip: int = 0) -> Iterator[pa.RecordBatch]:
        cursor = self.connection.execute(query)
        types = [parse(column[0]) for column in cursor.description]
        names = [str(position) for position in range(len(types))]
        step = 1
        while True:
            columns, step = _fetch(cursor, len(types), size, step)
            if not columns:
                return
            rows = len(columns[0])
            if skip < rows:
                columns = [values[skip:] for values in columns] if skip else columns
                yield pa.RecordBatch.from_arrays([_array(k, v) for k, v in zip(types, columns, strict=True)], names)
            skip = max(0, skip - rows)


def _fetch(cursor: sqlite3.Cursor, width: int, size: int, step: int) -> tuple[list[list[Any]], int]:
    """Return up to `size` rows as columns, empty at the end, and how many rows to fetch at once from here on: it
    begins with one, so that wide rows are noticed before many of them are in memory. Rows are turned into columns
    while they are in the processor's cache and before the garbage collector looks at them: twice as fast as all at
    once."""
    columns: list[list[Any]] = [[] for _ in range(width)]
    fetched = 0
    while len(columns[0]) < size and fetched < BATCH_BYTES and (rows := cursor.fetchmany(min(step, size))):
        wide = 0
        for values, part in zip(columns, zip(*rows, strict=True), strict=True):
            values.extend(part)
            wide += _width(part)
        fetched += wide
        fits = _FETCH_BYTES * len(rows) // max(wide, 1)
        step = max(1, min(_FETCH_ROWS, _GROWTH * step, fits))
    return (columns if columns[0] else []), step


def _width(values: Sequence[Any]) -> int:
    """Return the length of all texts and bytes among the values."""
    classes = set(map(type, values))
    if classes.isdisjoint(_SIZED):
        return 0
    return sum(map(len, values)) if classes <= _SIZED else sum(len(v) for v in values if type(v) in _SIZED)


def _lenient(text: bytes) -> str | BadText:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return BadText(text)


def _array(kind: DataType, values: Sequence[Any]) -> pa.Array:
    """Return a column of the declared type `kind`: native where every value is, else the exact texts."""
    classes = set(map(type, values)) - {type(None)}
    if isinstance(kind, Binary):
        return pa.array(values if classes <= {bytes} else [_bytes(v) for v in values], pa.binary())
    if isinstance(kind, Int) and classes <= {int}:
        return pa.array(values, pa.int64())
    if isinstance(kind, Float) and classes <= {float}:
        return pa.array(values, pa.float64())
    if classes <= {str}:
        return pa.array(values, pa.string())
    if classes == {int}:
        return pa.array(values, pa.int64()).cast(pa.string())
    if classes <= {int, float}:
        return pa.array([v if v is None else repr(v) for v in values], pa.string())
    if BadText in classes or isinstance(kind, String | Json):
        show = _bytes if isinstance(kind, String | Json) else _visible
        return pa.array([show(v) for v in values], pa.binary()).view(pa.string())
    return pa.array([v if v is None else _uuid(v) if isinstance(kind, Uuid) else text(v) for v in values], pa.string())


def text(value: Any) -> str:
    r"""Return the exact text form of a value; bytes as `\x` and hex digits."""
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return repr(value) if isinstance(value, float) else str(value)


def _uuid(value: Any) -> str:
    return str(UUID(bytes=value)) if isinstance(value, bytes) and len(value) == 16 else text(value)


def _bytes(value: Any) -> bytes | None:
    """Return bytes as they are, other values as the bytes of their text, as SQLite's CAST does. `stage` finds bytes
    that are no text."""
    return value if value is None or isinstance(value, bytes) else text(value).encode()


def _visible(value: Any) -> bytes | None:
    """Return bytes for a column that holds neither bytes nor text: bytes must not pass for a number there."""
    return bytes(value) if isinstance(value, BadText) else None if value is None else text(value).encode()
