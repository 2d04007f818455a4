# ruff: noqa: S608 - names are quoted
"""What the columns of a table are on the server, in Arrow and in its record.

Casts within the transaction: PostgreSQL's own where it changes no value, else those that loads use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from instep.destinations.base import Ref
from instep.destinations.postgres.server import PostgresSession
from instep.destinations.rows import cast_all
from instep.destinations.sql.merge import q
from instep.destinations.sql.records import Record
from instep.destinations.sql.shape import Physical, plain_type
from instep.destinations.types import postgres_primitive
from instep.errors import SchemaError
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import (
    Array,
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Float,
    Int,
    Json,
    String,
    Struct,
    Time,
    Timestamp,
    TimestampTz,
    Unknown,
    Uuid,
)
from instep.stage.field_metadata import VALID_JSON, WITHOUT_NUL

MAX_COLUMNS = 1_600
FIELD_ID = "PARQUET:field_id"
RESERVED = frozenset({"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"})
"""Columns that every table has already."""


def as_array(kind: DataType) -> bool:
    """Return whether an array of this is one on the server; one of arrays, which need not be of one length, is a
    document."""
    return isinstance(kind, Array) and not isinstance(kind.element, Array | Struct | Json)


def as_document(kind: DataType) -> bool:
    """Return whether the column holds JSON."""
    return isinstance(kind, Json | Struct) or (isinstance(kind, Array) and not as_array(kind))


def sql_type(kind: DataType) -> str:
    if as_document(kind):
        return "json"
    if isinstance(kind, Array):
        return f"{sql_type(kind.element)}[]"
    return postgres_primitive(kind)


def arrow_type(kind: DataType) -> pa.DataType:
    """Return what values of a type are in staged files and when they are read: what COPY takes as it is."""
    match kind:
        case Int(8):  # the server has none of one byte
            return pa.int16()
        case Array(element) if as_array(kind):
            return pa.large_list(pa.field("element", arrow_type(element)))
    return plain_type(kind)


def arrow_schema(record: Record) -> pa.Schema:
    """Return what a task writes: the columns in order, with their numbers, and which take no text with a NUL."""
    return pa.schema(
        [
            pa.field(c.name, arrow_type(c.type), c.nullable, {FIELD_ID: str(record.numbers[c.name]), **limits(c.type)})
            for c in record.table.columns
        ]
    )


def limits(kind: DataType) -> Mapping[bytes | str, bytes | str]:
    inner = kind.element if isinstance(kind, Array) and as_array(kind) else kind
    if isinstance(kind, Json):
        return {**WITHOUT_NUL, **VALID_JSON}
    return WITHOUT_NUL if isinstance(inner, String | Time | Unknown | Json) else {}


def check_names(table: Table, waiting: int = 0) -> None:
    """Raise SchemaError for a table that PostgreSQL could not hold; `waiting` columns are in it besides."""
    if len(table.columns) + waiting > MAX_COLUMNS:
        raise SchemaError(
            f"table {table.path} would have {len(table.columns) + waiting} columns: PostgreSQL holds {MAX_COLUMNS}",
            hint="exclude some under `exclude: {columns: [...]}` in the project file",
        )
    for what, name in [("table", table.name), *(("column", c.name) for c in table.columns)]:
        if len(name.encode()) > 63:
            raise SchemaError(f"{what} {name!r} of {table.path} is longer than 63 bytes", hint="give it an alias")
    if odd := next((c.name for c in table.columns if c.name in RESERVED), None):
        raise SchemaError(
            f"column {odd!r} of {table.path}: PostgreSQL has one of that name in every table", hint="give it an alias"
        )


@dataclass(frozen=True)
class PostgresRelation:
    """A table or view as the server has it."""

    columns: tuple[Physical, ...]
    comment: str | None


_RELATIONS = """
SELECT n.nspname, c.relname, obj_description(c.oid, 'pg_class'), a.attname,
  format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, col_description(c.oid, a.attnum)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN unnest(%s::text[], %s::text[]) AS w(namespace, name) ON n.nspname = w.namespace AND c.relname = w.name
  LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY c.oid, a.attnum
"""


def relations(session: PostgresSession, refs: Iterable[Ref]) -> dict[Ref, PostgresRelation]:
    """Return what is there under these names, be it a table, a view or anything else that takes a name."""
    wanted = list(refs)
    rows = session.run(_RELATIONS, [[r[0] for r in wanted], [r[1] for r in wanted]]) if wanted else []
    found: dict[Ref, list[Physical]] = {}
    comments: dict[Ref, str | None] = {}
    for schema, name, comment, *column in rows:
        columns = found.setdefault((schema, name), [])
        comments[schema, name] = comment
        if column[0] is not None:
            columns.append(Physical(*column))
    return {ref: PostgresRelation(tuple(columns), comments[ref]) for ref, columns in found.items()}


_BYTES = """
SELECT n.nspname, c.relname, pg_total_relation_size(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN unnest(%s::text[], %s::text[]) AS w(namespace, name) ON n.nspname = w.namespace AND c.relname = w.name
"""


def relation_bytes(session: PostgresSession, refs: Sequence[Ref]) -> dict[Ref, int]:
    """Return the bytes of those of `refs` that exist, with their indexes and long values."""
    rows = session.run(_BYTES, [[r[0] for r in refs], [r[1] for r in refs]]) if refs else []
    return {(schema, name): int(size) for schema, name, size in rows}


_SIZED = re.compile(r"^(?P<base>.+?)\((?P<sizes>[0-9,\-]+)\)(?P<rest>[^()]*)$")


def data_type(text: str) -> DataType:
    """Return the type that a type of PostgreSQL is read as; what we have no type for is json."""
    if text.endswith("[]"):
        element = data_type(text[:-2])
        return Array(element)
    if match := _SIZED.match(text):
        sizes = [int(n) for n in match["sizes"].split(",")]
        return _sized(f"{match['base']}{match['rest']}", sizes)
    return _NAMED.get(text, Json())


def _sized(base: str, sizes: list[int]) -> DataType:
    if base == "numeric":
        precision, scale = sizes[0], sizes[1] if len(sizes) > 1 else 0
        return Decimal(precision, scale) if precision <= 38 and 0 <= scale <= precision else String()
    if base in ("character varying", "character"):
        return String(sizes[0])
    return _NAMED.get(base, Json())


_NAMED: dict[str, DataType] = {
    "boolean": Boolean(), "smallint": Int(16), "integer": Int(32), "bigint": Int(64), "real": Float(32),
    "double precision": Float(64), "numeric": String(), "text": String(), "character varying": String(),
    "character": String(), "name": String(), "bytea": Binary(), "date": Date(), "time without time zone": Time(),
    "timestamp without time zone": Timestamp(), "timestamp with time zone": TimestampTz(), "uuid": Uuid(),
    "json": Json(), "jsonb": Json(),
}  # fmt: skip


BATCH = 20_000
_NEW = "_instep_values"


def converted(name: str, before: DataType, after: DataType) -> str:
    """Return a column (quoted) of the type `before` as SQL of the type `after`, which holds every value."""
    return f"{name}::{sql_type(after)}"


def rewrite(session: PostgresSession, table: str, place: str, before: DataType, column: Column) -> None:
    """Add `column` with the values that the column at `place`, of the type `before`, holds; IllegalChange if one does
    not fit."""
    kind = sql_type(column.type)
    session.run(f"CREATE TEMP TABLE {_NEW} (n tid, v {kind}) ON COMMIT DROP")
    for batch in _cast(session, table, place, before, column):
        copy_rows(session, _NEW, batch)
    session.run(f"ALTER TABLE {table} ADD COLUMN {q(column.name)} {kind}")
    session.run(f"ANALYZE {_NEW}")
    session.run(f"UPDATE {table} AS t SET {q(column.name)} = s.v FROM {_NEW} AS s WHERE t.ctid = s.n")
    session.run(f"DROP TABLE {_NEW}")


def _cast(
    session: PostgresSession, table: str, place: str, before: DataType, column: Column
) -> Iterator[list[tuple[Any, ...]]]:
    target = arrow_type(column.type)
    sql = f"SELECT ctid::text, {shown(place, before)} FROM {table} WHERE {q(place)} IS NOT NULL"
    with session.db.cursor("instep_rewrite") as cursor:
        cursor.execute(sql.encode())
        while rows := cursor.fetchmany(BATCH):
            old = pa.array([_plain(v) for _, v in rows], arrow_type(before))
            new = cast_all(column.name, old, before, column.type, target)
            yield [(n, v) for (n, _), v in zip(rows, new.to_pylist(), strict=True)]


def shown(name: str, kind: DataType, side: str = "") -> str:
    """Return a column as it is read: a document is its text."""
    column = f"{side}.{q(name)}" if side else q(name)
    return f"{column}::text" if as_document(kind) else column


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def copy_rows(session: PostgresSession, table: str, rows: list[tuple[Any, ...]]) -> None:
    """Bring rows of Python values into a table of this transaction."""
    with session.db.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)
