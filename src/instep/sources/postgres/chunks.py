"""How a PostgreSQL table is cut: ranges of pages, each a query that scans just those pages.

The last range of a table is open, so rows are complete whatever the statistics say; within one snapshot each
row version has one place, so no row is read twice. Ranges need PostgreSQL 14 (TID range scans) and a heap:
before that, and for views and foreign tables, one query reads all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.sources.postgres.sql import literal, quote_table, select
from instep.stage.spec import Chunk

if TYPE_CHECKING:
    import psycopg

CHUNK_ROWS = 1_000_000
CHUNK_BYTES = 256 << 20
LARGE = 200_000
TID_RANGES = 140_000

_STORAGE = """
WITH RECURSIVE part(oid, depth) AS (
    SELECT {table}::regclass::oid, 0
  UNION ALL
    SELECT i.inhrelid, depth + 1 FROM part p JOIN pg_inherits i ON i.inhparent = p.oid
)
SELECT n.nspname, c.relname, c.relkind, coalesce(m.amname, '') = 'heap',
       has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE'), row_security_active(c.oid),
       coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::int8, coalesce(pg_table_size(c.oid), 0),
       CASE WHEN c.relpages > 0 THEN c.reltuples / c.relpages ELSE -1 END, depth
FROM (SELECT oid, min(depth) AS depth FROM part GROUP BY oid) p
JOIN pg_class c ON c.oid = p.oid JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_am m ON m.oid = c.relam
ORDER BY depth, c.oid
"""
_ROW_BYTES = 100


@dataclass(frozen=True)
class Storage:
    """A table, or a part of one, with pages of its own. `name` is quoted; `density` is rows per page, -1 if unknown."""

    name: str
    kind: str
    heap: bool
    readable: bool
    secured: bool
    pages: int
    bytes: int
    density: float
    depth: int

    @property
    def rows(self) -> int:
        return int(self.pages * self.density) if self.density >= 0 else self.bytes // _ROW_BYTES


def storage(connection: psycopg.Connection[Any], schema: str, name: str) -> list[Storage]:
    """The table itself, then the partitions and inheriting tables below it."""
    statement = _STORAGE.replace("{table}", literal(quote_table(schema, name)))
    return [Storage(quote_table(r[0], r[1]), *r[2:]) for r in connection.execute(statement.encode()).fetchall()]


@dataclass(frozen=True)
class Part:
    """What one query reads: `source` is the text after FROM, `where` a condition or ""."""

    source: str
    where: str
    rows: int
    bytes: int


def parts(found: Sequence[Storage], version: int) -> list[Part]:
    """The table's parts. Leaves are read one by one only where that gives the same rows as reading the parent:
    each is a readable heap, and no row-level security applies."""
    top, *below = found
    leaves = [s for s in found if s.kind != "p"]
    alone = all(s.heap and s.readable and not s.secured and s.kind in "rm" for s in leaves)
    if not (alone and leaves and not top.secured):
        return [Part(top.name, "", sum(s.rows for s in leaves), sum(s.bytes for s in leaves))]
    return [part for leaf in leaves for part in _cut(leaf, version, "ONLY " if below else "")]


def _cut(leaf: Storage, version: int, only: str) -> list[Part]:
    count = _count(leaf) if version >= TID_RANGES else 1
    edges = [leaf.pages * i // count for i in range(count)]
    return [
        Part(only + leaf.name, _range(start, end), leaf.rows // count, leaf.bytes // count)
        for start, end in zip(edges, [*edges[1:], None], strict=True)
    ]


def _count(leaf: Storage) -> int:
    by_size = max(-(-leaf.rows // CHUNK_ROWS), -(-leaf.bytes // CHUNK_BYTES), 1)
    spread = min(max(leaf.rows // (CHUNK_ROWS // 4), 2), 8) if leaf.rows > LARGE else 1
    return min(max(by_size, spread), max(leaf.pages, 1))


def _range(start: int, end: int | None) -> str:
    terms = [f"ctid >= '({start},0)'"] if start else []
    return " AND ".join([*terms, f"ctid < '({end},0)'"] if end is not None else terms)


def chunk_list(key: str, what: str, found: Sequence[Part], condition: str, lane: str, size: str = "") -> list[Chunk]:
    """The chunks, largest first; `what` is the text between SELECT and FROM, `size` that for a row's key and size."""
    return [
        _chunk(key, number, what, part, condition, lane, size)
        for number, part in enumerate(sorted(found, key=lambda p: -p.bytes))
    ]


def _chunk(key: str, number: int, what: str, part: Part, condition: str, lane: str, size: str) -> Chunk:
    largest = f"{select(size, part.source, part.where, condition)} ORDER BY 2 DESC LIMIT 1" if size else ""
    return Chunk(key, number, select(what, part.source, part.where, condition), part.rows, part.bytes, lane, largest)
