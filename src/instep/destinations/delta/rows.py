# ruff: noqa: S608 - columns are numbered
"""Rows of a table as Arrow: read, looked up by key, replaced by staged ones.

Rows of a table as Arrow: read, looked up by key, put in place of others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from instep.destinations.base import CastSample, Commit, InvalidValueCount, LoadOutcome, Ref, RowLookup, RowUpdate
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.files import batches, path_of, rows_in, rows_of_files, staged_path
from instep.destinations.delta.protocol.deletion_vectors import deleted_places
from instep.destinations.delta.protocol.snapshot import rows_of
from instep.destinations.delta.pruning import may_have
from instep.destinations.delta.rewrite import Places, RowEdit, edited
from instep.destinations.delta.shape import DeltaField, arrow_of, arrow_type, file_schema, values_of
from instep.destinations.delta.table_state import DeltaTableState, find, loaded, named, readable
from instep.destinations.delta.warehouse import DeltaFacet
from instep.destinations.filters import ColumnFilter
from instep.destinations.rows import brief, first_rows, invalid_values_in, tried
from instep.destinations.shared import RowsMoved
from instep.errors import DestinationError
from instep.schema.catalog.types import DataType
from instep.stage.duckdb_memory import in_duckdb
from instep.stage.files.object_store import AnyPath
from instep.stage.fold import Scan
from instep.stage.spec import Chunk, StagedFile

MEMORY = "2GB"
Numbers = npt.NDArray[np.int64]


def engine(*, streams: bool = False) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    """Return a connection with tables of its own; `streams`: see `duckdb_cursor`."""
    return in_duckdb(MEMORY, lossless=True, streams=streams, wrong=_incomparable)


def _incomparable(name: str) -> DestinationError:
    return DestinationError(f"the rows could not be compared: {name}", hint="run `instep verify`")


def fields_by_name(state: DeltaTableState, names: Sequence[str]) -> list[DeltaField]:
    by_name = {f.name: f for f in state.columns}
    return [by_name[n] for n in names]


def table_rows(
    state: DeltaTableState,
    names: Sequence[str],
    compared: Collection[str] = (),
    files: Sequence[int] | None = None,
) -> pa.RecordBatchReader:
    """Return the columns of the whole table as c0, c1, ... (names may be anything), f (file number), p (place in it).
    Long values of columns that are only `compared` are digests. `files`: the numbers of those that are read, in this
    order; None: all."""
    fields = fields_by_name(state, names)
    schema = numbered(fields, f=pa.int32(), p=pa.int64())

    def rows() -> Iterator[pa.RecordBatch]:
        for number, start, batch in rows_of_files(state, fields, files):
            place = [pa.repeat(pa.scalar(number, pa.int32()), len(batch)), _range(start, len(batch))]
            yield pa.RecordBatch.from_arrays([*brief_columns(batch, names, compared), *place], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, rows())


def staged_rows(
    state: DeltaTableState, names: Sequence[str], files: Sequence[StagedFile], compared: Collection[str] = ()
) -> pa.RecordBatchReader:
    """Return the columns of staged files as c0, c1, ..., and n, their number in the order in which they came. Long
    values of columns that are only `compared` are digests."""
    fields = fields_by_name(state, names)
    schema = numbered(fields, n=pa.int64())

    def rows() -> Iterator[pa.RecordBatch]:
        start = 0
        for file in in_order(files):
            for batch in batches(staged_path(state, file), fields, by_id=True):
                columns = [*brief_columns(batch, names, compared), _range(start, len(batch))]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
                start += len(batch)

    return pa.RecordBatchReader.from_batches(schema, rows())


def staged_at(
    state: DeltaTableState, names: Sequence[str], files: Sequence[StagedFile], numbers: Numbers | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of staged rows by name: those with these numbers, in ascending order; None: all of them."""
    fields, start = fields_by_name(state, names), 0
    for file in in_order(files):
        if numbers is not None and not len(_between(numbers, start, file.rows)):
            start += file.rows
            continue
        for batch in batches(staged_path(state, file), fields, by_id=True):
            requested = None if numbers is None else _between(numbers, start, len(batch)) - start
            start += len(batch)
            if requested is None or len(requested):
                part = batch if requested is None else batch.take(pa.array(requested))
                yield pa.RecordBatch.from_arrays(part.columns, names=list(names))


def in_order(files: Sequence[StagedFile]) -> list[StagedFile]:
    return sorted((f for f in files if f.rows), key=lambda f: (f.chunk, f.path))


def _between(numbers: Numbers, start: int, count: int) -> Numbers:
    low, high = np.searchsorted(numbers, [start, start + count])
    return numbers[low:high]


def brief_columns(batch: pa.RecordBatch, names: Sequence[str], compared: Collection[str]) -> list[pa.Array]:
    return [brief(c) if name in compared else c for name, c in zip(names, batch.columns, strict=True)]


def numbered(fields: Sequence[DeltaField], **more: pa.DataType) -> pa.Schema:
    return pa.schema([*((f"c{i}", arrow_type(f.type)) for i, f in enumerate(fields)), *more.items()])


def _range(start: int, count: int) -> pa.Array:
    return pa.array(np.arange(start, start + count))


def places(db: duckdb.DuckDBPyConnection, sql: str) -> Places:
    """Return the answer of a query whose columns are whole numbers, as lines."""
    arrays = db.execute(sql).fetchnumpy()
    return np.stack([np.asarray(c, dtype=np.int64) for c in arrays.values()], axis=1)


def run(db: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    """Return all rows that a statement answers: none may be left over when the next one starts."""
    return db.execute(sql).fetchall()


def count(db: duckdb.DuckDBPyConnection, sql: str) -> int:
    [(number,)] = run(db, sql)
    return int(number)


def as_table(db: duckdb.DuckDBPyConnection, sql: str, names: Sequence[str] = ()) -> pa.Table:
    """Return the answer of a query, its columns called so."""
    relation = db.sql(sql)
    assert relation is not None, "a query has an answer"
    rows: pa.Table = relation.to_arrow_table()
    return rows.rename_columns(list(names)) if names else rows


def _plain(fields: Sequence[DeltaField]) -> pa.Schema:
    """Return columns as they are read."""
    return pa.schema([pa.field(f.name, arrow_type(f.type), f.nullable) for f in fields])


def read_state(
    state: DeltaTableState, names: Sequence[str] = (), filters: Sequence[ColumnFilter] = ()
) -> pa.RecordBatchReader:
    """Return the rows, of the files and row groups that may have some that pass the filters."""
    names_now = {f.name for f in state.fields}
    if odd := next((n for n in names if n not in names_now), None):
        raise DestinationError(f"table {named(state.ref)} has no column {odd!r}", hint="see `instep schema show`")
    fields = fields_by_name(state, names) if names else list(state.fields)
    schema = _plain(fields)

    def rows() -> Iterator[pa.RecordBatch]:
        for file in state.files:
            if may_have(file, filters, state.columns, state.by):
                for batch in rows_in(state, file, fields, filters):
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, rows())


@dataclass(frozen=True)
class DeltaChunk(Chunk):
    """One data file of the table in a folder, what it has by its partition (by physical name), and its deletion
    vector."""

    folder: AnyPath | None = field(default=None, repr=False)
    place: AnyPath | None = field(default=None, repr=False)
    values: Mapping[str, pa.Scalar] = field(default_factory=dict, repr=False)
    vector: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class DeltaReader:
    """Reads data files in a task, as the table has these columns."""

    fields: tuple[DeltaField, ...]

    @contextmanager
    def open(self) -> Iterator[DeltaReader]:
        """Yield itself: a file is opened where it is read."""
        yield self

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file."""
        assert isinstance(chunk, DeltaChunk)
        assert chunk.place is not None
        assert chunk.folder is not None
        schema, deleted = _plain(self.fields), deleted_places(chunk.folder, chunk.vector)
        for batch in batches(chunk.place, self.fields, partition_values=chunk.values, deleted=deleted):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def scan_state(state: DeltaTableState, names: Sequence[str]) -> Scan:
    """Return columns of the rows of one version, for tasks to read."""
    chunks = [
        DeltaChunk(
            named(state.ref),
            number,
            "",
            rows_of(file),
            int(file.get("size", 0)),
            folder=state.folder,
            place=path_of(state, file),
            values=values_of(file, state.by),
            vector=file.get("deletionVector"),
        )
        for number, file in enumerate(state.files)
    ]
    return Scan(DeltaReader(tuple(fields_by_name(state, names))), chunks)


def rows_at(state: DeltaTableState, at: Places, fields: Sequence[DeltaField]) -> pa.Table:
    """Return the rows at these lines of (file number, place), in this order."""
    parts = [pa.Table.from_batches([], file_schema(fields))]
    order = np.lexsort((at[:, 1], at[:, 0]))
    for number in np.unique(at[:, 0]):
        positions, start = np.sort(at[at[:, 0] == number, 1]), 0
        for batch in rows_in(state, state.files[int(number)], fields):
            low, high = np.searchsorted(positions, [start, start + len(batch)])
            if low < high:
                parts.append(pa.Table.from_batches([batch.take(pa.array(positions[low:high] - start))]))
            start += len(batch)
    rows = pa.concat_tables(parts).rename_columns([f.name for f in fields])
    return rows.take(pa.array(np.argsort(order, kind="stable")))


@dataclass(frozen=True)
class _FoundRows:
    """Positions of the rows that were found."""

    version: int
    """The record's, which a claim leaves as it is."""
    files: frozenset[tuple[str, str]]
    at: Places


def _may_have_keys(state: DeltaTableState, keys: pa.Table) -> list[int]:
    """Return the numbers of the files that may have a row with one of the keys."""
    filters = list[ColumnFilter]()
    for name in keys.column_names:
        kind = keys.column(name).type
        ordered = (pa.types.is_integer, pa.types.is_date32, pa.types.is_string, pa.types.is_large_string)
        if len(keys) and any(is_one(kind) for is_one in ordered):
            low, high = (bound.as_py() for bound in pc.min_max(keys.column(name)).values())
            filters += [ColumnFilter(name, ">=", (low,)), ColumnFilter(name, "<=", (high,))] if low is not None else []
    return [n for n, file in enumerate(state.files) if may_have(file, filters, state.columns, state.by)]


class DeltaRows(DeltaFacet):
    """Rows that are read, and put right one by one."""

    def read(self, ref: Ref, names: Sequence[str] = (), filters: Sequence[ColumnFilter] = ()) -> pa.RecordBatchReader:
        """Return the rows of the newest version; DestinationError for a column that is not there."""
        return read_state(readable(self.warehouse, ref), names, filters)

    def scan(self, ref: Ref, names: Sequence[str]) -> Scan:
        """Return columns of the rows of the newest version, for tasks to read."""
        return scan_state(readable(self.warehouse, ref), names)

    def lookup_rows(self, ref: Ref, keys: pa.Table) -> RowLookup:
        """Return the rows that have one of the keys (columns by name; no two alike)."""
        table_state, _ = loaded(self.warehouse, ref)
        fields = fields_by_name(table_state, keys.column_names)
        key_columns = [keys.column(i).cast(arrow_type(f.type)) for i, f in enumerate(fields)]
        names = [*(f"c{i}" for i in range(len(fields))), "n"]
        same = " AND ".join(f"t.{name} = k.{name}" for name in names[:-1])
        with engine() as db:
            db.register("k", pa.table([*key_columns, pa.array(range(len(keys)), pa.int64())], names=names))
            db.register("t", table_rows(table_state, keys.column_names, files=_may_have_keys(table_state, keys)))
            arrays = db.execute(f"SELECT k.n, t.f, t.p FROM t JOIN k ON {same} ORDER BY t.f, t.p").fetchnumpy()
        at = np.stack([arrays["f"].astype(np.int64), arrays["p"].astype(np.int64)], axis=1)
        rows = rows_at(table_state, at, table_state.fields).cast(_plain(table_state.fields))
        return RowLookup(
            rows, [int(n) for n in arrays["n"]], _FoundRows(table_state.record.version, table_state.own.ids, at)
        )

    def update_rows(self, ref: Ref, lookup: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        """Raise Conflict if the table has moved since, Fenced if a later run has claimed it."""
        seen = lookup.places
        assert isinstance(seen, _FoundRows), "`lookup_rows` made it"
        table_state, _ = loaded(self.warehouse, ref)
        table_state.record.check(commit.fence)
        if table_state.record.version != seen.version or table_state.own.ids != seen.files:
            raise RowsMoved(ref)
        rows = table_state.rows + len(change.inserted)
        work = DeltaCommit(table_state, table_state.record.after_load(commit, rows, new=len(change.inserted)))
        at = seen.at[np.array(change.rows, dtype=np.int64)]
        edits = [RowEdit(at, change.updated)] if len(at) else []
        edited(work, edits, change.inserted.to_batches(), commit)
        work.land("UPDATE", commit, self.warehouse)
        return LoadOutcome(len(change.inserted), len(change.rows), 0)

    def sample_cast(self, ref: Ref, column: str, kind: DataType, key: Sequence[str], limit: int) -> CastSample:
        """Cast the values of the first rows there and back."""
        table_state = readable(self.warehouse, ref)
        names = [column, *(k for k in key if k != column)]
        reader, parts, rows = read_state(table_state, names), list[pa.RecordBatch](), 0
        for batch in reader:
            parts.append(batch)
            rows += len(batch)
            if rows >= limit:
                break
        sample = pa.Table.from_batches(parts, reader.schema).slice(0, limit).combine_chunks()
        return tried(sample, column, key, table_state.table().by_name[column].type, kind, arrow_of(kind))

    def count_invalid_values(self, ref: Ref, column: str, kind: DataType) -> InvalidValueCount:
        """Return how many values of a column do not fit a type, and one of them; reads that column only."""
        table_state = find(self.warehouse, ref)
        if table_state is None:
            return InvalidValueCount()
        parts = (batch.column(0) for batch in read_state(table_state, [column]))
        return invalid_values_in(parts, table_state.table().by_name[column].type, kind, arrow_of(kind))

    def first_rows(self, ref: Ref, limit: int) -> pa.Table:
        """Return at most so many rows, all columns of them."""
        reader = self.read(ref)
        return first_rows(reader, limit, reader.schema)
