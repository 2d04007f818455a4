"""Versions of tables, by which two snapshots prove that a table has the same rows.

PostgreSQL's statistics count the rows that were written, but late, and not forever: they prove nothing. What does:

- the transactions that a snapshot shows. If two snapshots show the same, nothing was committed between them.
- the row versions of a table. Each is known by its place and the transaction that made it, and never changes. So
  tables with the same row versions have the same rows, whatever happened between.

Both hold for one start of one server. A restored server would number other transactions alike, so the version names
the start as well, and the moment from which its statistics count: they begin anew when a crash may have lost
transactions. And they hold for PostgreSQL itself: what only speaks its protocol, or stores rows in its own way, may
give these numbers another meaning. See docs/adr/0039-unchanged-tables.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.sources.postgres.types import literal, quote_table
from instep.stage.genuine_postgres import DIFFERS, GENUINE

if TYPE_CHECKING:
    import psycopg

Ref = tuple[str, str]
SMALL = 64 << 20
"""Bytes of the largest table whose row versions are looked at; of a larger one only the transactions are."""
TOGETHER = 100
"""Tables that one statement looks at."""
HALF_ROUND = 1 << 31
"""Transactions after which their numbers, as row versions have them, come again; by half of that none has."""
OLDEST = 130_000
"""The first version of PostgreSQL that tells transactions by numbers that do not come again."""

_POINT = """
SELECT concat_ws('/',
         CASE WHEN has_function_privilege('pg_control_system()', 'EXECUTE')
              THEN (SELECT system_identifier::text FROM pg_control_system()) END,
         (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()),
         extract(epoch FROM pg_postmaster_start_time()),
         (SELECT extract(epoch FROM b.stats_reset) FROM pg_stat_bgwriter b)),
       pg_current_snapshot()::text, pg_is_in_recovery(), version(),
       {differs}
"""
# Of views, foreign and partitioned tables, and of what policies show, row versions say nothing; unlogged rows go
# without a transaction. Types whose text may change while the row does not are left out: enums, domains, regclass,
# money.
# To take the size of a table one waits for whoever locks it: it passes for a large one.
_TABLES = """
SELECT w.schema, w.name, CASE WHEN l.relation IS NULL THEN pg_relation_size(c.oid) ELSE {large} END
FROM (VALUES {values}) w(schema, name)
JOIN pg_namespace n ON n.nspname = w.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
JOIN pg_am m ON m.oid = c.relam
LEFT JOIN (SELECT DISTINCT relation FROM pg_locks WHERE locktype = 'relation' AND mode = 'AccessExclusiveLock') l
  ON l.relation = c.oid
WHERE c.relkind = 'r' AND m.amname = 'heap' AND c.relpersistence = 'p' AND NOT c.relhassubclass
  AND NOT c.relrowsecurity AND has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE')
  AND NOT EXISTS (
    SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND (a.attgenerated = 'v' OR coalesce(
        (SELECT t.typelem FROM pg_type t WHERE t.oid = a.atttypid AND t.typcategory = 'A'), a.atttypid) <> ALL ('{{
          bool,bytea,"char",name,int8,int2,int4,text,oid,json,float4,float8,bpchar,varchar,date,time,timestamp,
          timestamptz,interval,timetz,bit,varbit,numeric,uuid,jsonb,inet,cidr,macaddr,macaddr8,xml}}'::regtype[]::oid[])))
"""
_ROWS = """
SELECT {number}, concat(count(*), ':', sum(hashtextextended(concat(r.ctid, ' ', r.xmin), 0))) FROM ONLY {table} r
"""


@dataclass(frozen=True)
class ReadPoint:
    """A start of a server, the transactions that a snapshot shows, and the row versions of a table ("": not looked
    at)."""

    start: str
    shown: str
    rows: str = ""

    @property
    def text(self) -> str:
        return f"{self.start}|{self.shown}|{self.rows}"

    def has_rows_of(self, before: ReadPoint) -> bool:
        """Return whether the table that was `before` has the same row versions."""
        near = 0 <= self._next - before._next < HALF_ROUND
        return near and self.start == before.start and bool(self.rows) and self.rows == before.rows

    @property
    def _next(self) -> int:
        return int(self.shown.split(":")[1])


def read_point(connection: psycopg.Connection[Any]) -> ReadPoint | None:
    """Return the snapshot's read point; None where that proves nothing: a standby does not report everything, and
    without the right to ask for its identity, a server may be another one. Nor does a server that is not PostgreSQL
    itself."""
    if connection.info.server_version < OLDEST:
        return None
    row = connection.execute(_POINT.format(differs=DIFFERS).encode()).fetchone()
    assert row is not None
    start, shown, standby, name, differs = row
    if standby or differs or start.count("/") < 3 or not GENUINE.fullmatch(name):
        return None
    return ReadPoint(start, shown)


def sizes(connection: psycopg.Connection[Any], refs: Sequence[Ref]) -> dict[Ref, int]:
    """Return the bytes of those of these tables whose rows are known by their versions."""
    values = ", ".join(f"({literal(s)}, {literal(n)})" for s, n in refs)
    statement = _TABLES.format(values=values, large=SMALL + 1)
    return {(s, n): size for s, n, size in connection.execute(statement.encode())} if values else {}


def batches(refs: Sequence[Ref]) -> Iterator[Sequence[Ref]]:
    for start in range(0, len(refs), TOGETHER):
        yield refs[start : start + TOGETHER]


def row_versions(connection: psycopg.Connection[Any], refs: Sequence[Ref]) -> Mapping[Ref, str]:
    """Return the row versions of these tables; of none where others have one of them, or take it."""
    import psycopg

    parts = (_ROWS.format(number=i, table=quote_table(*ref)) for i, ref in enumerate(refs))
    try:
        rows_of = connection.execute(" UNION ALL ".join(parts).encode()).fetchall()
    except psycopg.Error:
        if connection.closed:
            raise
        return {}
    return {refs[number]: rows for number, rows in rows_of}
