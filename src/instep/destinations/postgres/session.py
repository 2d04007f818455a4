# ruff: noqa: S608 - names are quoted
"""A connection to the server within a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import psycopg
import pyarrow as pa

from instep.destinations.base import Ref
from instep.destinations.postgres.dependants import dependants, index, proves_unique, unindex
from instep.destinations.postgres.shape import DIALECT
from instep.destinations.sql.merge import q
from instep.destinations.sql.record_tables import named
from instep.destinations.sql.records import Record
from instep.destinations.sql.session import SCHEMA, Dialect, SqlSession
from instep.destinations.sql.shape import Physical, Relation
from instep.destinations.sql.tables import MOVING
from instep.errors import DestinationError
from instep.stage.genuine_postgres import DIFFERS, GENUINE

_ROWS = 20_000
"""Rows that are Python values at a time."""
_LOCK = 7_305_804_402_000_001
_NAMED = """
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN unnest($1::text[], $2::text[]) AS w(namespace, name) ON n.nspname = w.namespace AND c.relname = w.name
"""
_RELATIONS = f"""
SELECT n.nspname, c.relname, obj_description(c.oid, 'pg_class'), a.attname,
  format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, col_description(c.oid, a.attnum)
{_NAMED} LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY c.oid, a.attnum
"""
_BYTES = f"SELECT n.nspname, c.relname, pg_total_relation_size(c.oid) {_NAMED}"
_EQUAL_TEXTS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), c.collname
FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
  AND to_jsonb(c) ->> 'collisdeterministic' = 'false'
ORDER BY a.attnum LIMIT 1
"""
"""Query for the first column of a table whose collation is not deterministic; servers without such collations answer
it, too."""
_LOOK_UP = """
SELECT set_config(name, '1.1', true) FROM pg_settings WHERE name = 'random_page_cost' AND source = 'default'
"""


SMALL = 64 << 20
"""Bytes of the largest table whose row versions are looked at."""
_LOOKED_AT = """
SELECT (txid_snapshot_xmax(txid_current_snapshot()) >> 31)::text
FROM pg_class c JOIN pg_am m ON m.oid = c.relam
WHERE c.oid = to_regclass($1) AND c.relkind = 'r' AND m.amname = 'heap' AND c.relpersistence = 'p'
  AND NOT c.relhassubclass AND NOT c.relrowsecurity AND pg_relation_size(c.oid) <= $2
"""
_HASHES = 140_000
"""The first version of the server that hashes the places of rows."""
_genuine: WeakKeyDictionary[psycopg.Connection[Any], bool] = WeakKeyDictionary()
"""True if connections lead to PostgreSQL itself."""


@dataclass
class PostgresSession(SqlSession):
    """A connection within a transaction, and the tables of records that it has seen."""

    dialect: ClassVar[Dialect] = DIALECT
    for_update: ClassVar[str] = " FOR UPDATE"
    db: psycopg.Connection[Any]
    part: tuple[str, str] | None = None
    ours: set[str] = field(default_factory=set)

    def name(self, schema: str, table: str) -> str:
        return f"{q(schema)}.{q(table)}"

    def schema(self, name: str) -> str:
        return q(name)

    def run(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows that a statement answers."""
        cursor = self.db.execute(sql.encode(), list(parameters) or None)
        return cursor.fetchall() if cursor.description else []

    def count(self, sql: str, *parameters: object) -> int:
        """Return the single number of a query, or the number of changed rows."""
        cursor = self.db.execute(sql.encode(), list(parameters) or None)
        if cursor.description is None:
            return cursor.rowcount
        [(number,)] = cursor.fetchall()
        return int(number)

    def scan(self, sql: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self.db.cursor("instep_scan") as cursor:
            cursor.execute(sql.encode())
            while rows := cursor.fetchmany(_ROWS):
                values = zip(*rows, strict=True)
                arrays = [pa.array(map(_plain, v), f.type) for v, f in zip(values, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    @contextmanager
    def temporary(self, name: str, types: Mapping[str, str], batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
        count, columns = 0, ", ".join(f"{q(n)} {kind}" for n, kind in types.items())
        self.run(f"CREATE TEMP TABLE {name} ({columns}) ON COMMIT DROP")
        for batch in batches:
            count += len(batch)
            with self.db.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN".encode()) as copy:
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    copy.write_row(row)
        self.analyze(name)
        yield count
        self.run(f"DROP TABLE {name}")

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Undo what fails inside, and go on with the transaction."""
        with self.db.transaction():
            yield

    def has_records(self, table: str) -> bool:
        sql = "SELECT count(*) FROM pg_class WHERE oid = to_regclass($1)"
        if table not in self.ours and self.count(sql, self.name(SCHEMA, table)):
            self.ours.add(table)
        return table in self.ours

    def make_schema(self, name: str) -> None:
        """Create the schema, one session at a time: two at once would collide in the catalog."""
        if not self.count("SELECT count(*) FROM pg_namespace WHERE nspname = $1", name):
            self.run(f"SELECT pg_advisory_xact_lock({_LOCK})")
            self.run(f"CREATE SCHEMA IF NOT EXISTS {self.schema(name)}")

    def relations(self, refs: Sequence[Ref]) -> dict[Ref, Relation]:
        """Return the tables, views and other relations that have these names."""
        columns_of: dict[Ref, list[Physical]] = {}
        comments: dict[Ref, str | None] = {}
        for schema, name, comment, *column in self._of(_RELATIONS, refs):
            columns = columns_of.setdefault((schema, name), [])
            comments[schema, name] = comment
            if column[0] is not None:
                columns.append(Physical(*column))
        return {ref: Relation(tuple(columns), comments[ref]) for ref, columns in columns_of.items()}

    def is_taken(self, ref: Ref) -> bool:
        return self.count(f"SELECT count(*) {_NAMED}", [ref[0]], [ref[1]]) > 0

    def types_of(self, ref: Ref) -> dict[str, str]:
        return {p.name: p.type for p in self.relations([ref])[ref].columns}

    def bytes_of(self, refs: Sequence[Ref]) -> dict[Ref, int]:
        """Return the bytes of those of `refs` that exist, with their indexes and long values."""
        return {(schema, name): int(size) for schema, name, size in self._of(_BYTES, refs)}

    def _of(self, sql: str, refs: Sequence[Ref]) -> list[tuple[Any, ...]]:
        return self.run(sql, [[r[0] for r in refs], [r[1] for r in refs]]) if refs else []

    def move(self, record: Record, new: Ref) -> Record:
        """Rename the table, also to another schema, without touching its rows."""
        old = record.ref
        if new[0] != old[0]:
            self.make_schema(new[0])
            # Under its own name between the two: neither schema may have the other's.
            self.run(f"ALTER TABLE {self.name(*old)} RENAME TO {q(between := f'{MOVING}{record.place[:12]}')}")
            self.run(f"ALTER TABLE {self.name(old[0], between)} SET SCHEMA {self.schema(new[0])}")
            old = (new[0], between)
        self.run(f"ALTER TABLE {self.name(*old)} RENAME TO {q(new[1])}")
        return replace(record, table=replace(record.table, schema=new[0], name=new[1]))

    def _is_genuine(self) -> bool:
        if self.db not in _genuine:
            [(name, differs)] = self.run(f"SELECT version(), {DIFFERS}")
            _genuine[self.db] = not differs and bool(GENUINE.fullmatch(name))
        return _genuine[self.db]

    def version(self, record: Record) -> str:
        """Return the table's version, from the place of each row version and the transaction that made it.

        The number of a transaction comes again after 2^32 others; the record is in the same database, and goes back
        with it.
        """
        table = self.name(*record.ref)
        looked_at = self.run(_LOOKED_AT, [table, SMALL]) if record.within is None and self._is_genuine() else []
        if not looked_at:
            return ""
        plain, by_place = "hashtextextended(concat(ctid, ' ', xmin), 0)", "hashtidextended(ctid, xmin::text::int8)"
        each = by_place if self.db.info.server_version >= _HASHES else plain
        [(rows,)] = self.run(f"SELECT concat(count(*), ':', sum({each})) FROM ONLY {table}")
        return f"{record.version}/{looked_at[0][0]}/{rows}"

    def dependants(self, ref: Ref, columns: Iterable[str] | None = None) -> list[str]:
        return dependants(self, ref, columns)

    def lock_table(self, ref: Ref) -> None:
        self.run(f"LOCK TABLE {self.name(*ref)} IN SHARE ROW EXCLUSIVE MODE")

    def index_key(self, record: Record, key: Sequence[str], *, rebuild: bool = False) -> None:
        table = self.name(*record.ref)
        if rebuild:
            unindex(self, table)
        index(self, table, key, record.place)

    def is_unique(self, table: str, key: Sequence[str]) -> bool:
        return proves_unique(self, table, key)

    def check_texts(self, record: Record) -> None:
        table = self.name(*record.ref)
        for column, kind, collation in self.run(_EQUAL_TEXTS, [table]):
            raise DestinationError(
                f"table {named(record.ref)}: its column {column} has the collation {collation} now, in which texts "
                "that differ are equal: keys and changes would be missed, so nothing was written",
                hint=f'run `ALTER TABLE {table} ALTER COLUMN {q(column)} TYPE {kind} COLLATE "default"` there, and '
                "give the collation in your queries or in a view",
            )

    def prefer_index(self) -> None:
        """Make the planner prefer the index: by the defaults, for spinning disks, it scans the table for a few rows."""
        self.run(_LOOK_UP)

    def analyze(self, table: str) -> None:
        self.run(f"ANALYZE {table}")


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
