# ruff: noqa: S608 - names are quoted or ours, values are parameters
"""A connection to a DuckDB file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

from instep.destinations.base import Ref
from instep.destinations.duckdb.shape import DIALECT
from instep.destinations.duckdb.views import detach, recorded_views
from instep.destinations.sql.merge import columns, q
from instep.destinations.sql.records import Record
from instep.destinations.sql.session import BATCH, SCHEMA, Dialect, SqlSession, name_taken
from instep.destinations.sql.shape import Physical, Relation
from instep.destinations.sql.tables import make, with_types
from instep.schema.planning.step import Step

_NAMED = "AND lower(table_name) IN (SELECT lower(name) FROM unnest($2::VARCHAR[]) AS requested(name))"
_COLUMNS = (
    "SELECT schema_name, table_name, column_name, data_type, is_nullable, comment FROM duckdb_columns() "
    f"WHERE database_name = $1 AND NOT internal {_NAMED} ORDER BY column_index"
)
_COMMENTS = f"SELECT schema_name, table_name, comment FROM duckdb_tables() WHERE database_name = $1 {_NAMED}"
_TAKEN = (
    "SELECT namespace, name FROM (SELECT schema_name, table_name, database_name FROM duckdb_tables() "
    "WHERE NOT internal UNION ALL SELECT schema_name, view_name, database_name FROM duckdb_views() "
    "WHERE NOT internal) AS there(namespace, name, base) WHERE base = $1 AND lower(name) = lower($2)"
)
_RECORDS = "SELECT count(*) FROM duckdb_tables() WHERE database_name = $1 AND schema_name = $2 AND table_name = $3"


def _folded(ref: Ref) -> tuple[bytes, bytes]:
    """Return the same key for two names that are one to DuckDB, which ignores the case of ASCII letters only: `É`
    and `é` are two tables. (So does `bytes.lower`; `lower` in SQL takes them for one.)"""
    return ref[0].encode().lower(), ref[1].encode().lower()


@dataclass
class DuckDbSession(SqlSession):
    """A connection to the file, the name of the file's catalog, and the tables of records that it is known to have;
    `epoch`: see `file.Epoch`."""

    dialect: ClassVar[Dialect] = DIALECT
    db: duckdb.DuckDBPyConnection
    catalog: str
    ours: set[str] = field(default_factory=set)
    part: tuple[str, str] | None = None
    epoch: str = ""

    def version(self, record: Record) -> str:
        """Return the table's version: within an epoch nobody else writes the file, and instep counts its commits."""
        return f"{self.epoch}/{record.version}" if self.epoch else ""

    def name(self, schema: str, table: str) -> str:
        """Return a table as SQL names it, whatever the file and its schemas are called."""
        return f"{q(self.catalog)}.{q(schema)}.{q(table)}"

    def schema(self, name: str) -> str:
        return f"{q(self.catalog)}.{q(name)}"

    def count(self, sql: str, *parameters: object) -> int:
        """Return the single number of a query, or the number of changed rows."""
        [(number,)] = self.run(sql, parameters)
        return int(number)

    def run(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows that a statement answers: none may be left over when the next one starts."""
        return self.db.execute(sql, list(parameters)).fetchall()

    def batches(self, sql: str) -> pa.RecordBatchReader:
        """Return the result of a query in batches."""
        return self.db.sql(sql).arrow(BATCH)

    def scan(self, sql: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        # a boolean comes as an 8-bit integer of its own type, whose text would be a number
        for batch in self.batches(sql):
            pairs = zip(batch.columns, schema, strict=True)
            arrays = [c if c.type == f.type else c.cast(f.type) for c, f in pairs]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    @contextmanager
    def temporary(self, name: str, types: Mapping[str, str], batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
        parts = list(batches)
        rows = pa.Table.from_batches(parts) if parts else pa.table({column: pa.nulls(0) for column in types})
        self.db.register(name, rows)
        yield len(rows)
        self.db.unregister(name)

    def has_records(self, table: str) -> bool:
        """Return whether the table has records; looked up once while the file is open."""
        if table not in self.ours and self.count(_RECORDS, self.catalog, SCHEMA, table):
            self.ours.add(table)
        return table in self.ours

    def make_schema(self, name: str) -> None:
        self.run(f"CREATE SCHEMA IF NOT EXISTS {self.schema(name)}")

    def relations(self, refs: Sequence[Ref]) -> dict[Ref, Relation]:
        names = [name for _, name in refs]
        physical: dict[Ref, list[Physical]] = {}
        for schema, table, *facts in self.run(_COLUMNS, [self.catalog, names]) if names else []:
            physical.setdefault((schema, table), []).append(Physical(*facts))
        comments = {(schema, name): text for schema, name, text in self.run(_COMMENTS, [self.catalog, names])}
        hidden = recorded_views(self)
        tables = {ref: Relation(tuple(parts), comments.get(ref)) for ref, parts in physical.items()}
        by_name = {_folded(ref): relation for ref, relation in tables.items() if ref not in hidden}
        return {ref: by_name[_folded(ref)] for ref in refs if _folded(ref) in by_name}

    def create_table(self, ref: Ref, definitions: str, hint: str) -> None:
        """Make a table without a look at all others, which costs more the more there are."""
        try:
            self.run(f"CREATE TABLE {self.name(*ref)} ({definitions})")
        except duckdb.CatalogException as error:
            if "already exists" not in str(error):
                raise
            raise name_taken(ref, hint) from error

    def is_taken(self, ref: Ref) -> bool:
        """Return whether the file has a table or view of this name, in any case."""
        return any(self.is_one_name(other, ref) for other in self.run(_TAKEN, [self.catalog, ref[1]]))

    def is_one_name(self, ref: Ref, other: Ref) -> bool:
        return _folded(ref) == _folded(other)

    def types_of(self, ref: Ref) -> dict[str, str]:
        return {name: kind for name, kind, *_ in self.run(f"DESCRIBE {self.name(*ref)}")}

    def move(self, record: Record, new: Ref) -> Record:
        """Rename a table. DuckDB moves none into another schema: there the table is rewritten."""
        moved = replace(record, table=replace(record.table, schema=new[0], name=new[1]))
        old = self.name(*record.ref)
        if new[0] == record.ref[0]:
            self.run(f"ALTER TABLE {old} RENAME TO {q(new[1])}")
            return moved
        new_record = make(self, moved)
        for waits in record.parked:
            kind = record.stored.get(waits.place, "VARCHAR")
            self.run(f"ALTER TABLE {self.name(*new)} ADD COLUMN {q(waits.place)} {kind}")
        names = columns([*moved.names, *(p.place for p in record.parked)])
        self.run(f"INSERT INTO {self.name(*new)} ({names}) SELECT {names} FROM {old}")
        self.run(f"DROP TABLE {old}")
        return with_types(self, new_record)

    def detach_views(self, table: Ref) -> Callable[[Sequence[Step]], None]:
        return detach(self, table)
