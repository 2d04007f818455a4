"""Where rows of a table and staged ones meet, by key and column by column."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.destinations.delta.files import batches, rows_of_files, staged_path
from instep.destinations.delta.rewrite import Places
from instep.destinations.delta.shape import DeltaField, arrow_type
from instep.destinations.delta.table_state import DeltaTableState
from instep.destinations.digests import brief
from instep.errors import DestinationError
from instep.stage.duckdb_memory import in_duckdb
from instep.stage.spec import StagedFile

MEMORY = "2GB"
Numbers = npt.NDArray[np.int64]


def engine() -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    """Return a connection with tables of its own."""
    return in_duckdb(MEMORY, lossless=True, wrong=_incomparable)


def _incomparable(name: str) -> DestinationError:
    return DestinationError(f"the rows could not be compared: {name}", hint="run `instep verify`")


def fields_by_name(state: DeltaTableState, names: Sequence[str]) -> list[DeltaField]:
    known = {f.name: f for f in state.columns}
    return [known[n] for n in names]


def table_rows(state: DeltaTableState, names: Sequence[str], compared: Collection[str] = ()) -> pa.RecordBatchReader:
    """Return the columns of the whole table as c0, c1, ... (names may be anything), f (file number), p (place in it).
    Long values of columns that are only `compared` are digests."""
    fields = fields_by_name(state, names)
    schema = _numbered(fields, f=pa.int32(), p=pa.int64())

    def rows() -> Iterator[pa.RecordBatch]:
        for number, start, batch in rows_of_files(state, fields):
            place = [pa.repeat(pa.scalar(number, pa.int32()), len(batch)), _range(start, len(batch))]
            yield pa.RecordBatch.from_arrays([*_brief(batch, names, compared), *place], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, rows())


def staged_rows(
    state: DeltaTableState, names: Sequence[str], files: Sequence[StagedFile], compared: Collection[str] = ()
) -> pa.RecordBatchReader:
    """Return the columns of staged files as c0, c1, ..., and n, their number in the order in which they came. Long
    values of columns that are only `compared` are digests."""
    fields = fields_by_name(state, names)
    schema = _numbered(fields, n=pa.int64())

    def rows() -> Iterator[pa.RecordBatch]:
        start = 0
        for file in _in_order(files):
            for batch in batches(staged_path(state, file), fields, by_id=True):
                columns = [*_brief(batch, names, compared), _range(start, len(batch))]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
                start += len(batch)

    return pa.RecordBatchReader.from_batches(schema, rows())


def staged_at(
    state: DeltaTableState, names: Sequence[str], files: Sequence[StagedFile], numbers: Numbers | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of staged rows by name: those with these numbers, in ascending order; None: all of them."""
    fields, start = fields_by_name(state, names), 0
    for file in _in_order(files):
        if numbers is not None and not len(_between(numbers, start, file.rows)):
            start += file.rows
            continue
        for batch in batches(staged_path(state, file), fields, by_id=True):
            here = None if numbers is None else _between(numbers, start, len(batch)) - start
            start += len(batch)
            if here is None or len(here):
                part = batch if here is None else batch.take(pa.array(here))
                yield pa.RecordBatch.from_arrays(part.columns, names=list(names))


def _in_order(files: Sequence[StagedFile]) -> list[StagedFile]:
    return sorted((f for f in files if f.rows), key=lambda f: (f.chunk, f.path))


def _between(numbers: Numbers, start: int, count: int) -> Numbers:
    low, high = np.searchsorted(numbers, [start, start + count])
    return numbers[low:high]


def _brief(batch: pa.RecordBatch, names: Sequence[str], compared: Collection[str]) -> list[pa.Array]:
    return [brief(c) if name in compared else c for name, c in zip(names, batch.columns, strict=True)]


def _numbered(fields: Sequence[DeltaField], **more: pa.DataType) -> pa.Schema:
    return pa.schema([*((f"c{i}", arrow_type(f.type)) for i, f in enumerate(fields)), *more.items()])


def _range(start: int, count: int) -> pa.Array:
    return pa.array(np.arange(start, start + count))


def places(db: duckdb.DuckDBPyConnection, sql: str) -> Places:
    """Return the answer of a query whose columns are whole numbers, as lines."""
    found = db.execute(sql).fetchnumpy()
    return np.stack([np.asarray(c, dtype=np.int64) for c in found.values()], axis=1)


def run(db: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    """Return all rows that a statement answers: none may be left over when the next one starts."""
    return db.execute(sql).fetchall()


def count(db: duckdb.DuckDBPyConnection, sql: str) -> int:
    [(number,)] = run(db, sql)
    return int(number)


def as_table(db: duckdb.DuckDBPyConnection, sql: str, names: Sequence[str] = ()) -> pa.Table:
    """Return the answer of a query, its columns called so."""
    found = db.sql(sql)
    assert found is not None, "a query has an answer"
    rows: pa.Table = found.to_arrow_table()
    return rows.rename_columns(list(names)) if names else rows
