# ruff: noqa: S608 - names are quoted
"""Rows of a table as Arrow: read, looked up by key, put in place of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from instep.destinations.base import (
    CastSample,
    Commit,
    InvalidValueCount,
    LoadOutcome,
    Merge,
    MergePath,
    Ref,
    RowLookup,
    RowUpdate,
)
from instep.destinations.filters import ColumnFilter, sql_text
from instep.destinations.rows import invalid_values_in, tried
from instep.destinations.shared import RowsMoved
from instep.destinations.sql.database import SqlFacet
from instep.destinations.sql.loads import count_rows
from instep.destinations.sql.merge import columns, q, shard_condition
from instep.destinations.sql.record_tables import find, missing, named, put
from instep.destinations.sql.records import Record, rows_key
from instep.destinations.sql.session import Dialect, SqlSession
from instep.errors import DestinationError
from instep.schema.catalog.types import DataType
from instep.stage.spec import StagedFile

_KEYS = "_instep_asked"


def _shown(session: SqlSession, record: Record, names: Sequence[str]) -> str:
    _check_columns(record, names)
    return ", ".join(f"{session.dialect.shown(n, record.table.by_name[n].type, 't')} AS {q(n)}" for n in names)


def _check_columns(record: Record, names: Sequence[str]) -> None:
    if odd := next((n for n in names if n not in record.table.by_name), None):
        raise DestinationError(f"table {named(record.ref)} has no column {odd!r}", hint="see `instep schema show`")


def as_read(dialect: Dialect, batch: pa.RecordBatch, record: Record, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the table's own fields; values are what they were."""
    pairs = zip(batch.columns, schema, strict=True)
    arrays = [
        c if c.type == f.type else dialect.as_read(c, record.table.by_name[f.name].type, f.type) for c, f in pairs
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class SqlRows(SqlFacet):
    """Rows that are read, and put right one by one."""

    def _read(
        self,
        ref: Ref,
        names: Sequence[str] = (),
        filters: Sequence[ColumnFilter] = (),
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Return the rows, as they are now, or the first ones."""

        def sql(session: SqlSession, record: Record) -> str:
            shown, in_shard = _shown(session, record, names or record.names), shard_condition(record.within, "t")
            conditions = [text for f in filters if (text := sql_text(f, f"t.{q(f.column)}"))]
            end = "" if limit is None else f" LIMIT {limit:d}"
            return f"SELECT {shown} FROM {session.name(*ref)} AS t WHERE {' AND '.join([in_shard, *conditions])}{end}"

        record, batches = self.database.select(ref, sql)
        dialect = self.database.dialect
        whole = dialect.arrow_schema(record)
        schema = pa.schema([whole.field(n) for n in names or record.names])
        return pa.RecordBatchReader.from_batches(schema, (as_read(dialect, b, record, schema) for b in batches))

    def read(self, ref: Ref, names: Sequence[str] = (), filters: Sequence[ColumnFilter] = ()) -> pa.RecordBatchReader:
        """Return the rows as they are now; the database applies the filters."""
        return self._read(ref, names, filters)

    def is_large(self, ref: Ref, files: Sequence[StagedFile] = ()) -> bool:
        """Return False: the database does the work."""
        return False

    def merge_path(self, ref: Ref, files: Sequence[StagedFile], how: Merge) -> MergePath:
        """Return the one path there is."""
        return "database"

    def scan(self, ref: Ref, names: Sequence[str]) -> None:
        """Return nothing: its rows come over connections of this process."""
        return

    def first_rows(self, ref: Ref, limit: int) -> pa.Table:
        """Return at most so many rows, all columns of them."""
        return self._read(ref, limit=limit).read_all()

    def lookup_rows(self, ref: Ref, keys: pa.Table) -> RowLookup:
        """Return the rows that have one of the keys (columns by name; no two alike)."""
        numbered = keys.rename_columns([f"k{i}" for i in range(keys.num_columns)])
        numbered = numbered.append_column("n", pa.array(range(len(keys)), pa.int64()))

        def sql(session: SqlSession, record: Record) -> str:
            if record.state is None:
                raise DestinationError(f"table {named(ref)} has not been loaded yet", hint="sync it first")
            same = " AND ".join(f"{text} = k.k{i}" for i, text in enumerate(_compared(session, record, names)))
            source = f"{session.name(*ref)} AS t JOIN {_KEYS} AS k ON {same}"
            return f"SELECT k.n AS _instep_n, {_shown(session, record, record.names)} FROM {source}"

        names, numbers = keys.column_names, list[int]()
        record, batches = self.database.select(ref, sql, (_KEYS, numbered))
        dialect = self.database.dialect
        schema = dialect.arrow_schema(record)

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                numbers.extend(batch.column(0).to_pylist())
                own = pa.RecordBatch.from_arrays(batch.columns[1:], names=schema.names)
                yield as_read(dialect, own, record, schema)

        met = pa.Table.from_batches(list(rows()), schema)
        return RowLookup(met, numbers, (record.version, rows_key(record, names)))

    def update_rows(self, ref: Ref, lookup: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        """Raise Conflict if the table has moved since, Fenced if a later run has claimed it."""
        return self.database.fitting(ref, lambda: self._update(ref, lookup, change, commit))

    def _update(self, ref: Ref, lookup: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        assert isinstance(lookup.places, tuple), "`lookup_rows` made it"
        version, key = lookup.places
        record, dialect = self.database.known(ref, commit), self.database.dialect
        names = record.names
        kinds, keys = dialect.kinds(record.table, names), dialect.kinds(record.table, key)
        with self.database.staging(record, commit) as staging:
            schema = dialect.arrow_schema(record)
            old = _widened(lookup.rows.take(pa.array(change.rows, pa.int64())), schema, key)
            labels = [*(f"k{i}" for i in range(len(key))), *(f"v{i}" for i in range(len(names)))]
            updated = pa.table([*old.columns, *_widened(change.updated, schema, names).columns], names=labels)
            types = dict(zip(labels, [*keys.values(), *kinds.values()], strict=True))
            staging.add_rows("updated", types, updated)
            staging.add_rows("inserted", kinds, _widened(change.inserted, schema, names))
            with staging.loading() as (session, current):
                if current.version != version or current.state is None:
                    raise RowsMoved(ref)
                target, into = session.name(*ref), columns(names)
                sets = ", ".join(f"{q(n)} = s.v{i}" for i, n in enumerate(names))
                documents, texts = dialect.documents(record.table), _compared(session, record, key)
                pairs = enumerate(zip(key, texts, strict=True))
                same = " AND ".join(f"{t} = s.k{i}{'::text' if k in documents else ''}" for i, (k, t) in pairs)
                if len(change.rows):
                    session.run(f"UPDATE {target} AS t SET {sets} FROM {staging.table('updated')} AS s WHERE {same}")
                if len(change.inserted):
                    session.run(f"INSERT INTO {target} ({into}) SELECT {into} FROM {staging.table('inserted')}")
                put(session, current.after_load(commit, count_rows(session, current), new=len(change.inserted)))
        return LoadOutcome(len(change.inserted), len(change.rows), 0)

    def sample_cast(self, ref: Ref, column: str, kind: DataType, key: Sequence[str], limit: int) -> CastSample:
        """Cast the values of the first rows there and back."""
        sample = self._read(ref, [column, *(k for k in key if k != column)], limit=limit).read_all().combine_chunks()
        before = self._type(ref, column)
        if before is None:
            raise missing(ref)
        return tried(sample, column, key, before, kind, self.database.dialect.arrow_type(kind))

    def count_invalid_values(self, ref: Ref, column: str, kind: DataType) -> InvalidValueCount:
        """Return how many values of a column do not fit a type, and one of them; reads that column only."""
        before = self._type(ref, column)
        if before is None:
            return InvalidValueCount()
        parts = (batch.column(0) for batch in self.read(ref, [column]))
        return invalid_values_in(parts, before, kind, self.database.dialect.arrow_type(kind))

    def _type(self, ref: Ref, column: str) -> DataType | None:
        """Return the type of a column; None if the table is not there."""
        with self.database.reading() as session:
            record = find(session, ref)
        if record is None:
            return None
        _check_columns(record, [column])
        return record.table.by_name[column].type


def _widened(rows: pa.Table, schema: pa.Schema, names: Sequence[str]) -> pa.Table:
    """Return columns of rows as the table has them, even if another shard has widened some since the rows were met."""
    return pa.table([rows.column(n).cast(schema.field(n).type) for n in names], names=list(names))


def _compared(session: SqlSession, record: Record, names: Sequence[str]) -> list[str]:
    """Return columns of the table `t` as they are compared."""
    return [session.dialect.shown(n, record.table.by_name[n].type, "t") for n in names]
