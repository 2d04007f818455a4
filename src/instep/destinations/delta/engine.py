"""One DuckDB for the process: rows of a table and staged ones meet there, by key and column by column."""

from __future__ import annotations

import atexit
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from instep.destinations.delta.files import batches, rows_of_files, staged_path
from instep.destinations.delta.held import Held
from instep.destinations.delta.rewrite import Places
from instep.destinations.delta.shape import DeltaField, arrow_type
from instep.errors import DestinationError
from instep.stage.spec import StagedFile

MEMORY = "2GB"
_LOCK = threading.Lock()


@cache
def _engine() -> duckdb.DuckDBPyConnection:
    """Its memory is for all threads; what does not fit goes to the disk, below a folder that leaves with it."""
    spill = tempfile.TemporaryDirectory(prefix="instep-", ignore_cleanup_errors=True)
    config: dict[str, Any] = {
        "memory_limit": MEMORY, "temp_directory": f"{spill.name}/duckdb", "arrow_lossless_conversion": "true",
        "arrow_large_buffer_size": "true", "preserve_insertion_order": "false",
    }  # fmt: skip
    engine = duckdb.connect(":memory:", config=config)
    atexit.register(spill.cleanup)
    atexit.register(engine.close)
    return engine


@contextmanager
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with tables of its own."""
    with _LOCK:
        db = _engine().cursor()
    with db:
        db.execute("SET timezone = 'UTC'")
        try:
            yield db
        except duckdb.OutOfMemoryException as error:
            raise DestinationError(
                f"the rows that change do not fit into memory: {str(error).splitlines()[0]}",
                hint="free disk space for temporary files, then run it again",
            ) from error
        except duckdb.Error as error:
            said = str(error).strip().splitlines()[0]
            raise DestinationError(f"the rows could not be compared: {said}", hint="run `instep verify`") from error


def fields_by_name(held: Held, names: Sequence[str]) -> list[DeltaField]:
    known = {f.name: f for f in held.columns}
    return [known[n] for n in names]


def table_rows(held: Held, names: Sequence[str]) -> pa.RecordBatchReader:
    """The columns of the whole table as c0, c1, ... (names may be anything), f (file number), p (place in it)."""
    fields = fields_by_name(held, names)
    schema = _numbered(fields, f=pa.int32(), p=pa.int64())

    def rows() -> Iterator[pa.RecordBatch]:
        for number, start, batch in rows_of_files(held, fields):
            place = [pa.repeat(pa.scalar(number, pa.int32()), len(batch)), _range(start, len(batch))]
            yield pa.RecordBatch.from_arrays([*batch.columns, *place], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, rows())


def staged_rows(held: Held, names: Sequence[str], files: Sequence[StagedFile]) -> pa.RecordBatchReader:
    """The columns of staged files as c0, c1, ..., and n, their number in the order in which they came."""
    fields = fields_by_name(held, names)
    schema = _numbered(fields, n=pa.int64())

    def rows() -> Iterator[pa.RecordBatch]:
        start = 0
        for file in sorted((f for f in files if f.rows), key=lambda f: (f.chunk, f.path)):
            for batch in batches(staged_path(held, file), fields, by_id=True):
                yield pa.RecordBatch.from_arrays([*batch.columns, _range(start, len(batch))], schema=schema)
                start += len(batch)

    return pa.RecordBatchReader.from_batches(schema, rows())


def _numbered(fields: Sequence[DeltaField], **more: pa.DataType) -> pa.Schema:
    return pa.schema([*((f"c{i}", arrow_type(f.type)) for i, f in enumerate(fields)), *more.items()])


def _range(start: int, count: int) -> pa.Array:
    return pa.array(np.arange(start, start + count))


def places(db: duckdb.DuckDBPyConnection, sql: str) -> Places:
    """The answer of a query whose columns are whole numbers, as lines."""
    found = db.execute(sql).fetchnumpy()
    return np.stack([np.asarray(c, dtype=np.int64) for c in found.values()], axis=1)


def run(db: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    """All rows that a statement answers: none may be left over when the next one starts."""
    return db.execute(sql).fetchall()


def count(db: duckdb.DuckDBPyConnection, sql: str) -> int:
    [(number,)] = run(db, sql)
    return int(number)


def as_table(db: duckdb.DuckDBPyConnection, sql: str, names: Sequence[str] = ()) -> pa.Table:
    """The answer of a query, its columns called so."""
    found = db.sql(sql)
    assert found is not None, "a query has an answer"
    rows: pa.Table = found.to_arrow_table()
    return rows.rename_columns(list(names)) if names else rows
