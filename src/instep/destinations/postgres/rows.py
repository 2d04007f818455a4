# ruff: noqa: S608 - names are quoted
"""Rows of a table as Arrow: read, looked up by key, put in the place of others.

Values that were kept as JSON beside a table's rows, taken out into columns of their own: one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from adbc_driver_manager.dbapi import Connection

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
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.destinations.postgres.ingest import Staging, rows_of, whole
from instep.destinations.postgres.load import fitting, known, loading, rows, same
from instep.destinations.postgres.records import find, is_taken, not_ours, put, require
from instep.destinations.postgres.server import PostgresFacet, PostgresServer, PostgresSession
from instep.destinations.postgres.shape import (
    BATCH,
    arrow_schema,
    arrow_type,
    as_document,
    copy_rows,
    limits,
    shown,
    sql_type,
)
from instep.destinations.rows import invalid_values_in, tried
from instep.destinations.sql.alter import missing, named
from instep.destinations.sql.merge import NOTE, NOTES, PLACE, FillSql, check_loaded, columns, fill_size, q, within
from instep.destinations.sql.records import Record, rows_key
from instep.errors import Conflict, DestinationError
from instep.schema.catalog.types import DataType
from instep.stage.casts.cast import cast
from instep.stage.conform import compact_json
from instep.stage.field_metadata import limited
from instep.stage.overflow import from_texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_KEYS = "_instep_asked"


def present(server: PostgresServer, ref: Ref) -> Record:
    """Return the record of a table or copy that can be read; while a replacement waits it is the old table."""
    with server.reading() as session:
        record = find(session, ref)
        if record is None:
            raise not_ours(ref) if is_taken(session, ref) else missing(ref)
    return record


def listed(record: Record, names: Sequence[str], side: str = "t") -> str:
    """Return columns as they are read."""
    return ", ".join(f"{shown(n, record.table.by_name[n].type, side)} AS {q(n)}" for n in names)


def _part(record: Record, names: Sequence[str]) -> pa.Schema:
    whole = arrow_schema(record)
    return pa.schema([whole.field(n) for n in names])


def _name(ref: Ref) -> str:
    return f"{q(ref[0])}.{q(ref[1])}"


def _batches(server: PostgresServer, record: Record, sql: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with server.arrow() as arrow, closing(arrow.rows(sql)) as batches:
        for batch in batches:
            yield as_read(batch, record, schema)


def as_read(batch: pa.RecordBatch, record: Record, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the table's own fields; values are what they were."""
    kinds = [record.table.by_name[f.name].type for f in schema]
    arrays = [
        cast(c, kind, f.type, kind).values if c.type != f.type else c
        for c, f, kind in zip(batch.columns, schema, kinds, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _query_by_keys(connection: Connection, keys: pa.Table, sql: str) -> pa.Table:
    with connection.cursor() as cursor:
        cursor.adbc_ingest(_KEYS, keys, mode="create", temporary=True)
        cursor.execute(sql)
        return cursor.fetch_arrow_table()


def _amend(server: PostgresServer, ref: Ref, met: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
    assert isinstance(met.places, tuple), "`lookup_rows` made it"
    version, key = met.places
    record = known(server, ref, commit)
    names = [c.name for c in record.table.columns]
    kinds = [sql_type(c.type) for c in record.table.columns]
    staging = Staging(server, record, commit)
    with staging.used("updated", "inserted"):
        old = met.rows.take(pa.array(change.rows, pa.int64())).select(list(key))
        labels = [*(f"k{i}" for i in range(len(key))), *(f"v{i}" for i in range(len(names)))]
        updated = pa.table([*old.columns, *change.updated.select(names).columns], names=labels)
        of_keys = [sql_type(record.table.by_name[k].type) for k in key]
        new = staging.rows("updated", dict(zip(labels, [*of_keys, *kinds], strict=True)), updated)
        more = staging.rows("inserted", dict(zip(names, kinds, strict=True)), change.inserted.select(names))
        with loading(server, ref, commit) as (session, found):
            if found.version != version or found.state is None:
                raise Conflict(f"table {named(ref)} moved while its rows were looked at", hint="run the replay again")
            whole(session, new, len(updated))
            whole(session, more, len(change.inserted))
            sets = ", ".join(f"{q(n)} = s.v{i}" for i, n in enumerate(names))
            same = " AND ".join(f"t.{q(k)}{_text(of_keys[i])} = s.k{i}{_text(of_keys[i])}" for i, k in enumerate(key))
            if len(change.rows):
                session.run(f"UPDATE {_name(ref)} AS t SET {sets} FROM {new} AS s WHERE {same}")
            into = columns(names)
            session.run(f"INSERT INTO {_name(ref)} ({into}) SELECT {into} FROM {more}")
            put(session, found.after_load(commit, rows(session, found), new=len(change.inserted)))
    return LoadOutcome(len(change.inserted), len(change.rows), 0)


def _text(kind: str) -> str:
    return "::text" if kind == "json" else ""


class PostgresRows(PostgresFacet):
    """Rows that are read, and put right one by one."""

    def _read(self, ref: Ref, names: Sequence[str] = (), limit: int | None = None) -> pa.RecordBatchReader:
        """Return the rows, as they are now, or the first ones; a connection stays in use until the last batch was
        taken."""
        record = present(self.server, ref)
        wanted = list(names) or [c.name for c in record.table.columns]
        if odd := next((n for n in wanted if n not in record.table.by_name), None):
            raise DestinationError(f"table {named(ref)} has no column {odd!r}", hint="see `instep schema show`")
        schema = _part(record, wanted)
        sql = f"SELECT {listed(record, wanted)} FROM {_name(ref)} AS t WHERE {within(record.within, 't')}"
        sql = sql if limit is None else f"{sql} LIMIT {limit:d}"
        return pa.RecordBatchReader.from_batches(schema, _batches(self.server, record, sql, schema))

    def lookup_rows(self, ref: Ref, keys: pa.Table) -> RowLookup:
        """Return the rows that have one of the keys (columns by name; no two alike)."""
        record = present(self.server, ref)
        if record.state is None:
            raise DestinationError(f"table {named(ref)} has not been loaded yet", hint="sync it first")
        names, schema = [c.name for c in record.table.columns], arrow_schema(record)
        wanted_keys = keys.rename_columns([f"k{i}" for i in range(keys.num_columns)])
        wanted_keys = wanted_keys.append_column("n", pa.array(range(len(keys)), pa.int64()))
        documents = {c.name for c in record.table.columns if as_document(c.type)}
        same = " AND ".join(
            f"t.{q(k)}{'::text' if k in documents else ''} = k.k{i}" for i, k in enumerate(keys.column_names)
        )
        sql = f"SELECT k.n AS _instep_n, {listed(record, names)} FROM {_name(ref)} AS t JOIN {_KEYS} AS k ON {same}"
        with self.server.arrow() as arrow:
            found = arrow.call(lambda: _query_by_keys(arrow.connection, wanted_keys, sql)).combine_chunks()
        numbers = found.column(0).to_pylist()
        met = [as_read(b, record, schema) for b in found.remove_column(0).to_batches()]
        return RowLookup(
            pa.Table.from_batches(met, schema), numbers, (record.version, rows_key(record, keys.column_names))
        )

    def update_rows(self, ref: Ref, met: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        """Raises Conflict if the table has moved since, Fenced if a later run has claimed it."""
        return fitting(self.server, ref, lambda: _amend(self.server, ref, met, change, commit))

    def sample_cast(self, ref: Ref, column: str, kind: DataType, key: Sequence[str], limit: int) -> CastSample:
        """Casts the values of the first rows there and back."""
        record = present(self.server, ref)
        others = [k for k in key if k != column]
        schema = _part(record, [column, *others])
        sql = f"SELECT {listed(record, [column, *others])} FROM {_name(ref)} AS t "
        sql += f"WHERE {within(record.within, 't')} LIMIT {limit}"
        sample = pa.Table.from_batches(list(_batches(self.server, record, sql, schema)), schema).combine_chunks()
        return tried(sample, column, key, record.table.by_name[column].type, kind, arrow_type(kind))

    def count_invalid_values(self, ref: Ref, column: str, kind: DataType) -> InvalidValueCount:
        """Return how many values of a column do not fit a type, and one of them; reads that column only."""
        with self.server.reading() as session:
            record = find(session, ref)
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


_NEW = "_instep_promoted"
Row = tuple[Any, ...]


def _look(
    session: PostgresSession, record: Record, columns: Mapping[str, OverflowColumn], extra: str
) -> Iterator[list[Row]]:
    """(place, object, whether each column lacks a value) of the rows without a value that have an object."""
    lacks = [f"{q(c)} IS NULL" for c in columns]
    some = f"{q(extra)} IS NOT NULL AND ({' OR '.join(lacks)}) AND {within(record.within)}"
    what = ", ".join(["ctid::text", f"{q(extra)}::text", *lacks])
    with session.db.cursor("instep_promote") as cursor:
        cursor.execute(f"SELECT {what} FROM {session.name(*record.ref)} WHERE {some}".encode())
        while found := cursor.fetchmany(BATCH):
            yield found


def _of(found: Sequence[Row], columns: Mapping[str, OverflowColumn]) -> tuple[list[Row], int]:
    """Return rows that got a value (place, what is left of the object, the values), and how many values do not fit."""
    objects: list[dict[str, Any]] = [json.loads(row[1]) for row in found]
    got: list[set[str]] = [set() for _ in objects]
    values: list[list[Any]] = []
    invalid_values = 0
    for place, overflow in enumerate(columns.values(), 2):
        texts = overflow.texts(
            [o.get(overflow.name) if row[place] else None for o, row in zip(objects, found, strict=True)]
        )
        target = arrow_type(overflow.type)
        done = limited(from_texts(texts, overflow.type, target), pa.field("", target, metadata=limits(overflow.type)))
        invalid_values += len(done.invalid_values)
        values.append(done.values.to_pylist())
        for at, value in enumerate(values[-1]):
            got[at] |= {overflow.name} if value is not None else set()
    left = [{k: v for k, v in o.items() if k not in names} for o, names in zip(objects, got, strict=True)]
    texts = [compact_json(o) if o else None for o in left]
    made = zip((row[0] for row in found), texts, *values, strict=True)
    return [row for row, names in zip(made, got, strict=True) if names], invalid_values


class PostgresFills(PostgresFacet):
    """Values for rows that lack them, each time in one transaction."""

    def promote(self, ref: Ref, columns: Mapping[str, OverflowColumn], extra: str, commit: Commit) -> Promoted:
        """Bring kept values into columns, in one transaction."""
        with loading(self.server, ref, commit) as (session, record):
            state = record.state
            if state is None or extra not in record.table.by_name:
                return Promoted()
            kinds = [f"v{i} {sql_type(column.type)}" for i, column in enumerate(columns.values())]
            session.run(f"CREATE TEMP TABLE {_NEW} (n tid, o json, {', '.join(kinds)}) ON COMMIT DROP")
            done = invalid_values = 0
            for found in _look(session, record, columns, extra):
                made, odd = _of(found, columns)
                copy_rows(session, _NEW, made)
                done, invalid_values = done + len(made), invalid_values + odd
            if done:
                sets = [f"{q(c)} = coalesce(t.{q(c)}, s.v{i})" for i, c in enumerate(columns)]
                target = session.name(*ref)
                session.run(
                    f"UPDATE {target} AS t SET {', '.join(sets)}, {q(extra)} = s.o FROM {_NEW} AS s WHERE t.ctid = s.n"
                )
                own = replace(commit, cursor=state.cursor, accepted=state.accepted)
                put(session, record.after_load(own, rows(session, record), new=0))
        crashpoint("promote.committed")
        return Promoted(done, invalid_values)

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        with self.server.reading() as session:
            record = require(session, ref)
            return fill_size(session, record, columns, rows(session, record))

    def fill(
        self,
        spark: SparkSession | None,
        ref: Ref,
        work: Fill,
        commit: Commit,
        on_progress: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> Filled:
        """Rows with NULL in a column get its value; a value that is there is never replaced. In one
        transaction, so that nothing is asked in between. Cursor and accepted fingerprint stay."""
        record = known(self.server, ref, commit)
        check_loaded(record)
        staging = Staging(self.server, record, commit)
        documents = frozenset(c.name for c in record.table.columns if as_document(c.type))
        with staging.used("fill"):
            values = staging.files("fill", record.table, [*work.key, *work.columns, work.meta], work.values)
            with loading(self.server, ref, commit) as (session, found):
                same(found, record)
                whole(session, values, rows_of(work.values))
                sql = FillSql(work, session.name(*ref), values, documents)
                notes = sql.changed(session.run(sql.notes))
                session.run(f"CREATE TEMP TABLE {NOTES} ({PLACE} bigint, {NOTE} json) ON COMMIT DROP")
                copy_rows(session, NOTES, notes)
                crashpoint("fill.rewritten")
                filled = session.count(sql.update)
                put(session, found.after_fill(commit, rows(session, found), work.columns.values()))
        crashpoint("fill.committed")
        self.server.area.consume(work.values)
        done = Filled(filled, int(filled > 0), sum(f.bytes for f in work.values))
        on_progress(done.rows, done.bytes)
        return done

    def restore_dropped_values(self, ref: Ref, column: str, commit: Commit) -> int:
        """Do nothing: a dropped column waits in its table and keeps its values through updates and full loads."""
        return 0
