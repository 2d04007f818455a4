"""Where rows of a table and staged ones meet, by key and column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from instep.destinations.delta.files import batches, rows_of_files, staged_path
from instep.destinations.delta.held import Held
from instep.destinations.delta.rewrite import Places
from instep.destinations.delta.shape import DeltaField, arrow_type
from instep.errors import DestinationError
from instep.stage.in_duckdb import in_duckdb
from instep.stage.spec import StagedFile

MEMORY = "2GB"


def engine() -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    """A connection with tables of its own."""
    return in_duckdb(MEMORY, lossless=True, wrong=_incomparable)


def _incomparable(said: str) -> DestinationError:
    return DestinationError(f"the rows could not be compared: {said}", hint="run `instep verify`")


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
