"""Partitions of a table that follows the log: whether it tells all of their changes, and which ones they were.

Rows of partitions are logged as those of their table. But a partition that is attached brings rows, and one that is
detached, dropped or truncated takes rows along, of which the log has nothing under the table's name. So positions rest
on the partitions: each by its oid, the file its rows are in (a truncate gives it another one) and the transaction
that made it one of the table's. One that was created as a partition had no rows before, and harms no position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.sources.log import PART, Ref
from instep.sources.postgres.sql import quote_table

if TYPE_CHECKING:
    import psycopg

# Attaching writes all columns of a table anew, so one that is still as old as the table (tableoid's row never changes)
# shows that it was created as a partition. `pg_partition_tree` would wait for tables that are locked.
_PARTITIONS = """
WITH RECURSIVE tree(root, member, since) AS (
  SELECT c.oid, h.inhrelid, h.xmin::text FROM pg_class c JOIN pg_inherits h ON h.inhparent = c.oid
   WHERE c.relkind = 'p' AND NOT c.relispartition
  UNION ALL
  SELECT t.root, h.inhrelid, h.xmin::text FROM tree t JOIN pg_inherits h ON h.inhparent = t.member)
SELECT rn.nspname, r.relname, n.nspname, c.relname, c.oid::int8, c.relkind, c.relpersistence, c.relreplident,
  (SELECT json_agg(a.attname) FROM pg_index i JOIN pg_attribute a
     ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
    WHERE i.indrelid = c.oid AND i.indimmediate AND i.indisvalid
      AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END),
  c.relfilenode::int8 || '.' || t.since,
  EXISTS (SELECT FROM pg_attribute own JOIN pg_attribute a ON a.attrelid = own.attrelid
    WHERE own.attrelid = c.oid AND own.attnum = -6 AND a.attnum > 0 AND NOT a.attisdropped
      AND a.xmin = own.xmin AND a.cmin = own.cmin)
FROM tree t JOIN pg_class r ON r.oid = t.root JOIN pg_namespace rn ON rn.oid = r.relnamespace
JOIN pg_class c ON c.oid = t.member JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY c.oid
"""
_IDENTITY = {"n": "nothing", "d": "a primary key that is checked at once", "i": "an index"}


@dataclass(frozen=True)
class TablePartition:
    """`kind`, `persistence` and `replica` as PostgreSQL's catalog has them; `identity`: see `tables.LogTable`. `state`
    is another one once rows may have come or gone unseen; `born`: it was created as a partition."""

    ref: Ref
    oid: int
    kind: str
    persistence: str
    replica: str
    identity: frozenset[str] | None
    state: str
    born: bool

    @property
    def name(self) -> str:
        """Under which it stands in a shape."""
        return f"{PART}{self.oid}"

    def why_not(self, key: Sequence[str]) -> str:
        """Why its changes cannot be followed by this key."""
        path = ".".join(self.ref)
        if self.kind == "f":
            return f"its partition {path} is a foreign table, which has no log"
        if self.persistence != "p":
            return f"its partition {path} is not logged"
        why = "" if self.kind == "p" else unnamed(self.ref, self.replica, self.identity, key)
        return f"of its partition {path} {why}" if why else ""


def unnamed(ref: Ref, replica: str, identity: frozenset[str] | None, key: Sequence[str]) -> str:
    """Why the log does not name rows by this key, with the statement that makes it do so; "" if it does."""
    if identity is None or set(key) <= identity:
        return ""
    what = _IDENTITY[replica] if replica != "i" or identity else "an index that is gone"
    fix = "DEFAULT" if replica == "n" else "FULL"
    return (
        f"the log names its rows by {what}, not by {', '.join(key)}: "
        f"ALTER TABLE {quote_table(*ref)} REPLICA IDENTITY {fix};"
    )


def partitions(connection: psycopg.Connection[Any]) -> Mapping[Ref, tuple[TablePartition, ...]]:
    """Return those of all partitioned tables, on every level, by table."""
    found: dict[Ref, tuple[TablePartition, ...]] = {}
    for row in connection.execute(_PARTITIONS.encode()).fetchall():
        root, name, schema, own, oid, kind, persistence, replica, identity, state, born = row
        named = None if replica == "f" else frozenset(identity or ())
        part = TablePartition((schema, own), oid, kind, persistence, replica, named, state, born)
        found[root, name] = (*found.get((root, name), ()), part)
    return found
