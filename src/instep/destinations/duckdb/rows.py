# ruff: noqa: S608 - names are quoted, values are parameters
"""Rows of a table as Arrow: read, looked up by key, put in the place of others.

Values that were kept as JSON beside a table's rows, taken out into columns of their own: one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import (
    CastSample,
    Commit,
    Fill,
    Filled,
    FillSize,
    InvalidValueCount,
    LoadOutcome,
    Ref,
    RowLookup,
    RowUpdate,
)
from instep.destinations.duckdb.file import DuckDbFacet, DuckDbSession
from instep.destinations.duckdb.load import loading, rows, stage
from instep.destinations.duckdb.records import arrow_schema, arrow_type, find, is_taken, not_ours, put, require
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.destinations.rows import invalid_values_in, tried
from instep.destinations.sql.alter import missing, named
from instep.destinations.sql.merge import (
    NOT_LOADED,
    NOTE,
    NOTES,
    PLACE,
    FillSql,
    check_loaded,
    columns,
    fill_size,
    q,
    within,
)
from instep.destinations.sql.records import Record, rows_key
from instep.destinations.sql.staged import consume
from instep.errors import Conflict, DestinationError
from instep.schema.catalog.types import DataType, Json
from instep.stage.conform import compact_json
from instep.stage.overflow import from_texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


BATCH = 100_000
_NEW, _KEYS = "_instep_new", "_instep_asked"


def shown(record: Record, names: Sequence[str], side: str = "t") -> str:
    """Return columns as they are read: a JSON document is its text."""
    kinds = {c.name: c.type for c in record.table.columns}
    out = (f"{side}.{q(n)}::VARCHAR AS {q(n)}" if isinstance(kinds[n], Json) else f"{side}.{q(n)}" for n in names)
    return ", ".join(out)


def _present(session: DuckDbSession | None, ref: Ref) -> Record:
    """Return the record of a table or copy that can be read; while a replacement waits it is the old table."""
    record = find(session, ref) if session is not None else None
    if record is None:
        raise not_ours(ref) if session is not None and is_taken(session, ref) else missing(ref)
    return record


def _batches(reader: pa.RecordBatchReader, schema: pa.Schema, cleanup: ExitStack) -> Iterator[pa.RecordBatch]:
    with cleanup:
        for batch in reader:
            yield as_read(batch, schema)


def as_read(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the table's own fields; values are what they were."""
    pairs = zip(batch.columns, schema, strict=True)
    return pa.RecordBatch.from_arrays([c if c.type == f.type else c.cast(f.type) for c, f in pairs], schema=schema)


def _table(reader: pa.RecordBatchReader, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([as_read(b, schema) for b in reader], schema)


class DuckDbRows(DuckDbFacet):
    """Rows that are read, and put right one by one."""

    def _read(self, ref: Ref, names: Sequence[str] = (), limit: int | None = None) -> pa.RecordBatchReader:
        """Return the rows, as they are now, or the first ones; the file stays open until the last batch was taken."""
        with ExitStack() as stack:
            session = stack.enter_context(self.file.reading())
            record = _present(session, ref)
            assert session is not None, "a table that is there is in a file"
            wanted = list(names) or [c.name for c in record.table.columns]
            if odd := next((n for n in wanted if n not in record.table.by_name), None):
                raise DestinationError(f"table {named(ref)} has no column {odd!r}", hint="see `instep schema show`")
            sql = f"SELECT {shown(record, wanted)} FROM {session.name(*ref)} AS t WHERE {within(record.within, 't')}"
            reader = session.batches(sql if limit is None else f"{sql} LIMIT {limit:d}", BATCH)
            schema = pa.schema([arrow_schema(record).field(n) for n in wanted])
            closing = stack.pop_all()
        return pa.RecordBatchReader.from_batches(schema, _batches(reader, schema, closing))

    def lookup_rows(self, ref: Ref, keys: pa.Table) -> RowLookup:
        """Return the rows that have one of the keys (columns by name; no two alike)."""
        with self.file.reading() as session:
            record = _present(session, ref)
            if session is None or record.state is None:
                raise DestinationError(f"table {named(ref)} has not been loaded yet", hint="sync it first")
            names = [c.name for c in record.table.columns]
            session.db.register(
                _KEYS,
                keys.append_column("n", pa.array(range(len(keys)), pa.int64())).rename_columns(
                    [*(f"k{i}" for i in range(keys.num_columns)), "n"]
                ),
            )
            same = " AND ".join(f"t.{q(name)} = k.k{i}" for i, name in enumerate(keys.column_names))
            source = f"{session.name(*ref)} AS t JOIN {_KEYS} AS k ON {same}"
            sql = f"SELECT k.n AS _instep_n, {shown(record, names)} FROM {source}"
            found = session.arrow(sql)
            numbers = found.column(0).to_pylist()
            schema = arrow_schema(record)
            met = _table(found.remove_column(0).to_reader(), schema)
        return RowLookup(met, numbers, (record.version, rows_key(record, keys.column_names)))

    def update_rows(self, ref: Ref, met: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        """Raises Conflict if the table has moved since, Fenced if a later run has claimed it."""
        assert isinstance(met.places, tuple), "`lookup_rows` made it"
        version, key = met.places
        with loading(self.file, ref, commit) as (session, record):
            if record.version != version or record.state is None:
                raise Conflict(f"table {named(ref)} moved while its rows were looked at", hint="run the replay again")
            names, target = [c.name for c in record.table.columns], session.name(*ref)
            if len(change.rows):
                old = met.rows.take(pa.array(change.rows, pa.int64())).select(list(key))
                values = [*old.columns, *change.updated.select(names).columns]
                labels = [*(f"k{i}" for i in range(len(key))), *(f"v{i}" for i in range(len(names)))]
                session.db.register(_NEW, pa.table(values, names=labels))
                sets = ", ".join(f"{q(n)} = s.v{i}" for i, n in enumerate(names))
                same = " AND ".join(f"t.{q(k)} = s.k{i}" for i, k in enumerate(key))
                session.run(f"UPDATE {target} AS t SET {sets} FROM {_NEW} AS s WHERE {same}")
                session.db.unregister(_NEW)
            if len(change.inserted):
                session.db.register(_NEW, change.inserted)
                session.run(f"INSERT INTO {target} ({columns(names)}) SELECT {columns(names)} FROM {_NEW}")
                session.db.unregister(_NEW)
            put(session, record.after_load(commit, rows(session, record), new=len(change.inserted)))
        return LoadOutcome(len(change.inserted), len(change.rows), 0)

    def sample_cast(self, ref: Ref, column: str, kind: DataType, key: Sequence[str], limit: int) -> CastSample:
        """Casts the values of the first rows there and back."""
        with self.file.reading() as session:
            record = _present(session, ref)
            assert session is not None, "a table that is there is in a file"
            others = [k for k in key if k != column]
            sql = f"SELECT {shown(record, [column, *others])} FROM {session.name(*ref)} AS t "
            sql += f"WHERE {within(record.within, 't')} LIMIT {limit}"
            sample = session.arrow(sql)
        schema = arrow_schema(record)
        sample = _table(sample.to_reader(), pa.schema([schema.field(n) for n in (column, *others)])).combine_chunks()
        return tried(sample, column, key, record.table.by_name[column].type, kind, arrow_type(kind))

    def count_invalid_values(self, ref: Ref, column: str, kind: DataType) -> InvalidValueCount:
        """Return how many values of a column do not fit a type, and one of them; reads that column only."""
        with self.file.reading() as session:
            record = find(session, ref) if session is not None else None
        if record is None:
            return InvalidValueCount()
        parts = (batch.column(0) for batch in self.read(ref, [column]))
        return invalid_values_in(parts, record.table.by_name[column].type, kind, arrow_type(kind))

    def read(self, ref: Ref, names: Sequence[str] = ()) -> pa.RecordBatchReader:
        """Return the rows as they are now."""
        return self._read(ref, names)

    def scan(self, ref: Ref, names: Sequence[str]) -> None:
        """Return nothing: its rows come over connections of this process."""
        return

    def first_rows(self, ref: Ref, limit: int) -> pa.Table:
        """Return at most so many rows, all columns of them."""
        return self._read(ref, limit=limit).read_all()


_PROMOTED = "_instep_promoted"


@dataclass
class _DuckDbPromotedRows:
    """Rows that get a value: their places in the table, what their objects become, the values by column."""

    schema: pa.Schema
    batches: list[pa.RecordBatch] = field(default_factory=list)
    invalid_values: int = 0


def _look(
    session: DuckDbSession, record: Record, columns: Mapping[str, OverflowColumn], extra: str
) -> _DuckDbPromotedRows:
    """Only rows without a value that have an object are read."""
    kinds = [pa.field(f"v{i}", arrow_type(column.type)) for i, column in enumerate(columns.values())]
    found = _DuckDbPromotedRows(pa.schema([pa.field("n", pa.int64()), pa.field("o", pa.string()), *kinds]))
    lacks = [f"{q(c)} IS NULL" for c in columns]
    some = f"{q(extra)} IS NOT NULL AND ({' OR '.join(lacks)}) AND {within(record.within)}"
    what = ", ".join(["rowid", f"{q(extra)}::VARCHAR", *lacks])
    for batch in session.batches(f"SELECT {what} FROM {session.name(*record.ref)} WHERE {some}", BATCH):
        found.batches += _of(batch, columns, found)
    return found


def _of(
    batch: pa.RecordBatch, columns: Mapping[str, OverflowColumn], found: _DuckDbPromotedRows
) -> Iterator[pa.RecordBatch]:
    objects: list[dict[str, Any]] = [json.loads(text) for text in batch.column(1).to_pylist()]
    got: list[set[str]] = [set() for _ in objects]
    values: list[pa.Array] = []
    for place, overflow in enumerate(columns.values()):
        lacks = batch.column(place + 2).to_pylist()
        texts = overflow.texts([o.get(overflow.name) if lack else None for o, lack in zip(objects, lacks, strict=True)])
        done = from_texts(texts, overflow.type, found.schema.field(place + 2).type)
        found.invalid_values += len(done.invalid_values)
        values.append(done.values)
        for at, valid in enumerate(done.values.is_valid().to_pylist()):
            got[at] |= {overflow.name} if valid else set()
    left = [{k: v for k, v in o.items() if k not in names} for o, names in zip(objects, got, strict=True)]
    texts = [compact_json(o) if o else None for o in left]
    made = pa.record_batch([batch.column(0), pa.array(texts, pa.string()), *values], schema=found.schema)
    yield made.filter(pa.array([bool(names) for names in got]))


def _write(
    session: DuckDbSession,
    record: Record,
    found: _DuckDbPromotedRows,
    columns: Mapping[str, OverflowColumn],
    extra: str,
) -> None:
    session.db.register(_PROMOTED, pa.Table.from_batches(found.batches, found.schema))
    sets = [f"{q(c)} = coalesce(t.{q(c)}, s.v{i})" for i, c in enumerate(columns)]
    sets.append(f"{q(extra)} = s.o")
    session.run(
        f"UPDATE {session.name(*record.ref)} AS t SET {', '.join(sets)} FROM {_PROMOTED} AS s WHERE t.rowid = s.n"
    )
    session.db.unregister(_PROMOTED)


VALUES = "_instep_values"


def _note(session: DuckDbSession, notes: list[tuple[int, str | None]]) -> None:
    arrays = [pa.array([p for p, _ in notes], pa.int64()), pa.array([n for _, n in notes], pa.string())]
    session.db.register("_instep_new_notes", pa.table(arrays, names=[PLACE, NOTE]))
    session.run(f"CREATE TEMP TABLE {NOTES} AS SELECT * FROM _instep_new_notes")
    session.db.unregister("_instep_new_notes")


class DuckDbFills(DuckDbFacet):
    """Values for rows that lack them, each time in one transaction."""

    def promote(self, ref: Ref, columns: Mapping[str, OverflowColumn], extra: str, commit: Commit) -> Promoted:
        """Bring kept values into columns, in one transaction."""
        with loading(self.file, ref, commit) as (session, record):
            state = record.state
            if state is None or extra not in record.table.by_name:
                return Promoted()
            if any(c.name.casefold() == "rowid" for c in record.table.columns):
                why = f"table {'.'.join(ref)} has a column called rowid, which hides the places of its rows"
                raise DestinationError(why, hint="load the table again with `instep sync --full`")
            found = _look(session, record, columns, extra)
            done = sum(batch.num_rows for batch in found.batches)
            if done:
                _write(session, record, found, columns, extra)
                own = replace(commit, cursor=state.cursor, accepted=state.accepted)
                put(session, record.after_load(own, rows(session, record), new=0))
        crashpoint("promote.committed")
        return Promoted(done, found.invalid_values)

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        with self.file.reading() as session:
            if session is None:
                return FillSize(why_not=NOT_LOADED)
            record = require(session, ref)
            return fill_size(session, record, columns, rows(session, record))

    def fill(
        self,
        session: SparkSession | None,
        ref: Ref,
        work: Fill,
        commit: Commit,
        on_progress: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> Filled:
        """Rows with NULL in a column get its value; a value that is there is never replaced. In one
        transaction, so that nothing is asked in between. Cursor and accepted fingerprint stay."""
        with self.here(commit, work.values) as (here,):
            done = self._fill(ref, replace(work, values=tuple(here)), commit)
        on_progress(done.rows, done.bytes)
        return done

    def _fill(self, ref: Ref, work: Fill, commit: Commit) -> Filled:
        with loading(self.file, ref, commit) as (session, record):
            check_loaded(record)
            stage(session, record, VALUES, [*work.key, *work.columns, work.meta], work.values)
            sql = FillSql(work, session.name(*ref), VALUES)
            _note(session, sql.changed(session.run(sql.notes)))
            crashpoint("fill.rewritten")
            filled = session.count(sql.update)
            for table in (VALUES, NOTES):
                session.run(f"DROP TABLE {table}")
            put(session, record.after_fill(commit, rows(session, record), work.columns.values()))
        crashpoint("fill.committed")
        consume(work.values)
        return Filled(filled, int(filled > 0), sum(f.bytes for f in work.values))

    def restore_dropped_values(self, ref: Ref, column: str, commit: Commit) -> int:
        """Do nothing: a dropped column waits in its table and keeps its values through updates and full loads."""
        return 0
