"""Chunks of a PostgreSQL table: ranges of pages, each a query that scans just those pages.

The last range of a table is open, so rows are complete whatever the statistics say; within one snapshot each
row version has one place, so no row is read twice. Ranges need PostgreSQL 14 (TID range scans) and a heap:
before that, and for views and foreign tables, one query reads all.

Cursor columns: conditions, bounds and lookback, all computed by the server on its own texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from instep.errors import SchemaError
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Date, Decimal, Float, Int, Timestamp, TimestampTz
from instep.schema.planning.projection import TableRead
from instep.sources.base import CursorRange
from instep.sources.postgres.types import literal, quote, quote_table, select
from instep.stage.spec import Chunk

if TYPE_CHECKING:
    import psycopg


CHUNK_ROWS = 1_000_000
CHUNK_BYTES = 256 << 20
LARGE = 200_000
TID_RANGES = 140_000

_STORAGE = """
WITH RECURSIVE part(top, oid, depth) AS (
    {tables}
  UNION ALL
    SELECT p.top, i.inhrelid, depth + 1 FROM part p JOIN pg_inherits i ON i.inhparent = p.oid
)
SELECT p.top, n.nspname, c.relname, c.relkind, coalesce(m.amname, '') = 'heap',
       has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE'), row_security_active(c.oid),
       coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::int8, coalesce(pg_table_size(c.oid), 0),
       CASE WHEN c.relpages > 0 THEN c.reltuples / c.relpages ELSE -1 END
FROM (SELECT top, oid, min(depth) AS depth FROM part GROUP BY top, oid) p
JOIN pg_class c ON c.oid = p.oid JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_am m ON m.oid = c.relam
ORDER BY p.top, depth, c.oid
"""
# A view's tables are those of its rule. The catalog is that of the read point, the function's answer is of now.
_REWRITTEN = """
WITH RECURSIVE below(schema, name, oid) AS (
    SELECT w.schema, w.name, c.oid FROM (VALUES {values}) w(schema, name)
    JOIN pg_namespace n ON n.nspname = w.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
  UNION
    SELECT b.schema, b.name, x.oid FROM below b CROSS JOIN LATERAL (
        SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = b.oid
      UNION ALL
        SELECT d.refobjid FROM pg_rewrite r JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
         WHERE r.ev_class = b.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> b.oid) x(oid)
)
SELECT DISTINCT b.schema, b.name FROM below b JOIN pg_class c ON c.oid = b.oid
WHERE c.relkind IN ('r', 'm') AND c.relfilenode <> 0 AND c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid)
"""
_ROW_BYTES = 100
PIECE = 16 << 20
"""Bytes of a piece of a chunk, which is held in memory as a whole."""


@dataclass(frozen=True)
class HeapStorage:
    """A table or a partition with its own pages."""

    name: str
    """Quoted."""
    kind: str
    heap: bool
    readable: bool
    secured: bool
    pages: int
    bytes: int
    density: float
    """Rows per page, -1 if unknown."""

    @property
    def rows(self) -> int:
        return int(self.pages * self.density) if self.density >= 0 else self.bytes // _ROW_BYTES


def storage(connection: psycopg.Connection[Any], schema: str, name: str) -> list[HeapStorage]:
    """Return the table itself, then the partitions and inheriting tables below it."""
    sql = f"SELECT 0, {literal(quote_table(schema, name))}::regclass::oid, 0"
    return [heap for _, heap in _storages(connection, sql)]


def storages(
    connection: psycopg.Connection[Any], refs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], list[HeapStorage]]:
    """Return the same for several tables; a table that does not exist is left out."""
    values = ", ".join(f"({at}, {literal(quote_table(*ref))})" for at, ref in enumerate(refs))
    sql = f"SELECT w.top, to_regclass(w.name)::oid, 0 FROM (VALUES {values}) w(top, name)"  # noqa: S608 - literals
    stored: dict[tuple[str, str], list[HeapStorage]] = {}
    for at, heap in _storages(connection, sql):
        stored.setdefault(refs[at], []).append(heap)
    return stored


def _storages(connection: psycopg.Connection[Any], tables: str) -> list[tuple[int, HeapStorage]]:
    rows = connection.execute(_STORAGE.replace("{tables}", tables).encode()).fetchall()
    return [(r[0], HeapStorage(quote_table(r[1], r[2]), *r[3:])) for r in rows]


def rewritten(connection: psycopg.Connection[Any], refs: Sequence[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return the tables whose rows are in another file now than at the read point of the connection: ALTER TABLE and
    TRUNCATE leave nothing in it that an older read point would show."""
    values = ", ".join(f"({literal(s)}, {literal(n)})" for s, n in refs)
    if not values:
        return frozenset()
    return frozenset(connection.execute(_REWRITTEN.replace("{values}", values).encode()).fetchall())


@dataclass(frozen=True)
class QueryPart:
    """Part of a table that one query reads: `source` is the text after FROM, `where` a condition or ""."""

    source: str
    where: str
    rows: int
    bytes: int
    pieces: tuple[str, ...] = ()
    """Conditions that divide it, for queries that are short."""


def parts(heaps: Sequence[HeapStorage], version: int) -> list[QueryPart]:
    """Return the table's parts. Leaves are read one by one only where that gives the same rows as reading the parent:
    each is a readable heap, and no row-level security applies."""
    top, *below = heaps
    leaves = [s for s in heaps if s.kind != "p"]
    alone = all(s.heap and s.readable and not s.secured and s.kind in "rm" for s in leaves)
    if not (alone and leaves and not top.secured):
        return [QueryPart(top.name, "", sum(s.rows for s in leaves), sum(s.bytes for s in leaves))]
    return [part for leaf in leaves for part in _cut(leaf, version, "ONLY " if below else "")]


def _cut(leaf: HeapStorage, version: int, only: str) -> list[QueryPart]:
    count = _count(leaf) if version >= TID_RANGES else 1
    edges = [leaf.pages * i // count for i in range(count)]
    fine = 1 if version < TID_RANGES else -(-leaf.bytes // count // PIECE)
    return [
        QueryPart(
            only + leaf.name,
            _range(start, end),
            leaf.rows // count,
            leaf.bytes // count,
            _pieces(start, end, leaf.pages, fine),
        )
        for start, end in zip(edges, [*edges[1:], None], strict=True)
    ]


def _pieces(start: int, end: int | None, pages: int, count: int) -> tuple[str, ...]:
    last = pages if end is None else end
    edges = sorted({start + (last - start) * i // count for i in range(1, count)} - {start, last})
    return tuple(_range(low, high) for low, high in zip([start, *edges], [*edges, end], strict=True))


def _count(leaf: HeapStorage) -> int:
    by_size = max(-(-leaf.rows // CHUNK_ROWS), -(-leaf.bytes // CHUNK_BYTES), 1)
    spread = min(max(leaf.rows // (CHUNK_ROWS // 4), 2), 8) if leaf.rows > LARGE else 1
    return min(max(by_size, spread), max(leaf.pages, 1))


def _range(start: int, end: int | None) -> str:
    terms = [f"ctid >= '({start},0)'"] if start else []
    return " AND ".join([*terms, f"ctid < '({end},0)'"] if end is not None else terms)


def chunk_list(
    key: str, what: str, query_parts: Sequence[QueryPart], condition: str, lane: str, size: str = ""
) -> list[Chunk]:
    """Return the chunks, largest first; `what` is the text between SELECT and FROM, `size` that for a row's key and
    size."""
    return [
        _chunk(key, number, what, part, condition, lane, size)
        for number, part in enumerate(sorted(query_parts, key=lambda p: -p.bytes))
    ]


def _chunk(key: str, number: int, what: str, part: QueryPart, condition: str, lane: str, size: str) -> Chunk:
    largest = f"{select(size, part.source, part.where, condition)} ORDER BY 2 DESC LIMIT 1" if size else ""
    pieces = tuple(select(what, part.source, piece, condition) for piece in part.pieces)
    query = select(what, part.source, part.where, condition)
    return Chunk(key, number, query, part.rows, part.bytes, lane, largest, pieces)


def condition(read: TableRead, rows: CursorRange) -> str:
    """Return the rows of the range that the filter lets through; a NULL cursor is in no bounded range."""
    terms = [read.condition] if read.where else []
    if rows.column is not None:
        column = cursor_column(read, rows.column)
        bounds = ((">=", rows.lower), ("<=", rows.upper))
        terms += [f"{quote(column.name)} {op} {_value(b, column)}" for op, b in bounds if b is not None]
    return " AND ".join(terms)


def cursor_column(read: TableRead, name: str) -> Column:
    """Return the source column that feeds the accepted column `name`, or is called so; raises SchemaError without
    one."""
    fed = {c.column.name: c.source for c in read.columns if c.source}
    if column := fed.get(name) or read.source.by_name.get(name):
        return column
    hint = "choose another cursor for the table, or load it whole"
    raise SchemaError(f"{read.source.path}: the cursor column {name} is gone", hint=hint)


def _value(text: str, column: Column) -> str:
    return f"CAST({literal(text)} AS {column.native})"


def bounds_statement(table: Table, column: Column, where: str = "") -> str:
    """Return one row: the greatest value as text, and how many rows have no usable one (NULL, infinity or NaN).

    Infinity would be the last cursor value forever, so it counts as no value. The greatest is that of the column
    (`t.`), not of the text that is selected under the same name.
    """
    name, source = quote(column.name), quote_table(table.schema, table.name)
    finite = _finite(name, column)
    greatest = select(f"{name}::text", f"{source} AS t", f"{name} IS NOT NULL", finite, where)
    nulls = [select("count(*)", source, f"{name} IS NULL", where)] if column.nullable else []
    infinite = [select("count(*)", source, f"NOT ({finite})", where)] if finite else []
    counted = " + ".join(f"({q})" for q in nulls + infinite) or "0"
    return f"SELECT ({greatest} ORDER BY t.{name} DESC LIMIT 1), {counted}"


def _finite(name: str, column: Column) -> str:
    special: tuple[str, ...]
    match column.type:
        case Timestamp() | TimestampTz() | Date():
            special = ("infinity", "-infinity")
        case Float():
            special = ("infinity", "-infinity", "NaN")
        case _ if column.native.startswith("numeric"):
            return f"{name}::text NOT IN ('NaN', 'Infinity', '-Infinity')"
        case _:
            return ""
    return f"{name} NOT IN ({', '.join(_value(s, column) for s in special)})"


def moved_back(column: Column, after: str, lookback: float, path: str) -> str:
    """Return an expression for the text of `after` less `lookback` seconds or units; raises SchemaError for a type
    that has neither."""
    value = _value(after, column)
    match column.type:
        case Timestamp() | TimestampTz():
            return f"({value} - make_interval(secs => {lookback!r}))::text"
        case Date():
            return f"({value} - {ceil(lookback / 86400)})::text"
        case Int(bits):
            return f"greatest({value}::numeric - {ceil(lookback)}, {-(2 ** (bits - 1))})::text"
        case Decimal() | Float():
            return f"({value} - CAST({literal(repr(lookback))} AS {column.native}))::text"
        case _ if column.native.startswith("numeric"):
            return f"({value} - {literal(repr(lookback))}::numeric)::text"
    hint = "set lookback to 0, or choose a cursor that is a number or a time"
    raise SchemaError(f"{path}.{column.name}: {column.native} has no lookback", hint=hint)
