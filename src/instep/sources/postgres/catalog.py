"""The catalog of a PostgreSQL database: read in one statement, made into tables, fingerprinted in the server.

Each table comes as one JSON text with its MD5. The fingerprint is the MD5 over those digests in oid order, so
the server can compute it alone and a discovery computes the same from what it has read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.sources.base import Discovery, TableStats
from instep.sources.postgres.types import map_type, matches, quote, quote_table

if TYPE_CHECKING:
    import psycopg

VERSION = "1"
"""Part of each fingerprint: raise it when the mapping of types changes, so that catalogs are read again."""

KINDS = {"r": "table", "p": "table", "v": "view", "m": "materialized_view", "f": "foreign"}
PARENTS = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.oid IN (SELECT inhparent FROM pg_inherits)
"""
"""Query for the tables that others inherit from."""

_TABLES = """
WITH RECURSIVE domain(oid, base, typmod) AS (
    SELECT oid, typbasetype, typtypmod FROM pg_type WHERE typtype = 'd'
  UNION ALL
    SELECT d.oid, t.typbasetype, coalesce(nullif(t.typtypmod, -1), d.typmod)
    FROM domain d JOIN pg_type t ON t.oid = d.base AND t.typtype = 'd'
), base AS (
    SELECT d.oid, d.base, d.typmod FROM domain d JOIN pg_type t ON t.oid = d.base AND t.typtype <> 'd'
), part(root, oid) AS (
    SELECT oid, oid FROM pg_class WHERE relkind = 'p' AND NOT relispartition
  UNION ALL
    SELECT p.root, i.inhrelid FROM part p JOIN pg_inherits i ON i.inhparent = p.oid
), size AS (
    SELECT p.root, sum(greatest(c.reltuples, 0)) AS rows, sum(c.relpages + coalesce(t.relpages, 0)) AS pages
    FROM part p JOIN pg_class c ON c.oid = p.oid AND c.relkind <> 'p'
    LEFT JOIN pg_class t ON t.oid = c.reltoastrelid GROUP BY p.root
), listed AS (
    SELECT c.oid, n.nspname, c.relname, c.relkind,
           has_schema_privilege(n.oid, 'USAGE') AS usable, has_table_privilege(c.oid, 'SELECT') AS readable,
           coalesce(s.rows, greatest(c.reltuples, 0)) AS rows,
           coalesce(s.pages, c.relpages + coalesce(t.relpages, 0)) AS pages
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN size s ON s.root = c.oid LEFT JOIN pg_class t ON t.oid = c.reltoastrelid
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
      AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND {matches}
), described AS (
    SELECT l.oid, l.rows, l.pages, json_build_array(
        l.oid::int8, l.nspname, l.relname, l.relkind, l.usable, l.readable, rc.description, (
            SELECT json_agg(json_build_array(
                a.attnum, a.attname, format_type(coalesce(b.base, a.atttypid), coalesce(b.typmod, a.atttypmod)),
                CASE WHEN b.oid IS NOT NULL THEN format_type(a.atttypid, NULL) END,
                CASE WHEN e.typelem <> 0 AND e.typlen = -1 THEN m.typtype ELSE e.typtype END, a.attndims,
                NOT a.attnotnull, array_position(i.indkey::int2[], a.attnum) + 1,
                a.attidentity, a.attgenerated, pg_get_expr(d.adbin, d.adrelid), cc.description,
                l.readable OR has_column_privilege(l.oid, a.attnum, 'SELECT')
              ) ORDER BY a.attnum)
            FROM pg_attribute a
            LEFT JOIN base b ON b.oid = a.atttypid
            JOIN pg_type e ON e.oid = coalesce(b.base, a.atttypid) LEFT JOIN pg_type m ON m.oid = e.typelem
            LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            LEFT JOIN pg_description cc ON cc.objoid = a.attrelid AND cc.classoid = 'pg_class'::regclass
                                       AND cc.objsubid = a.attnum
            WHERE a.attrelid = l.oid AND a.attnum > 0 AND NOT a.attisdropped))::text AS body
    FROM listed l
    LEFT JOIN pg_index i ON i.indrelid = l.oid AND i.indisprimary
    LEFT JOIN pg_description rc ON rc.objoid = l.oid AND rc.classoid = 'pg_class'::regclass AND rc.objsubid = 0
)
"""
_READ = "SELECT rows::int8, pages::int8, body, md5(body) FROM described ORDER BY oid"
_DIGEST = "SELECT md5(coalesce(string_agg(md5(body), ',' ORDER BY oid), '')) FROM described"
_IDENTITY = """SELECT has_function_privilege('pg_control_system()', 'EXECUTE'), d.oid::int8,
    current_setting('block_size')::int8 FROM pg_database d WHERE d.datname = current_database()"""


@dataclass(frozen=True)
class Names:
    """Patterns of the tables of a catalog query."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def statement(self, tail: str) -> str:
        chosen = matches("n.nspname::text", "c.relname::text", self.include, self.exclude)
        return _TABLES.replace("{matches}", chosen) + tail


def read_fingerprint(connection: psycopg.Connection[Any], names: Names) -> str:
    """Return the fingerprint that `read_catalog` gives, computed in the server."""
    with _understood():
        (row,) = connection.execute(names.statement(_DIGEST).encode()).fetchall()
        return f"{VERSION}:{row[0]}"


def read_catalog(connection: psycopg.Connection[Any], names: Names) -> Discovery:
    """Return every selected table, denied ones included: a table that is in `denied` is in the catalog too."""
    with _understood():
        identity, block = _read_identity(connection)
        rows = connection.execute(names.statement(_READ).encode()).fetchall()
        tables: list[Table] = []
        stats: dict[tuple[str, str], TableStats] = {}
        denied: dict[tuple[str, ...], str] = {}
        for count, pages, body, _ in rows:
            described = _Described(*json.loads(body))
            table = _table(described, bool(identity))
            tables.append(table)
            stats[table.ref] = TableStats(count, pages * block)
            denied.update(_denied(described, connection.info.user))
        joined = hashlib.md5(",".join(row[3] for row in rows).encode(), usedforsecurity=False)
        digest = f"{VERSION}:{joined.hexdigest()}"
        proof = bool(identity) and not denied
        return Discovery(Catalog.of(tables), digest, stats, denied, identity, proof)


@contextmanager
def _understood() -> Iterator[None]:
    """Raise psycopg's DataError for an answer that no PostgreSQL gives."""
    import psycopg

    try:
        yield
    except (ValueError, TypeError, LookupError) as error:
        raise psycopg.DataError(f"its answers about its tables are not those of PostgreSQL: {error}") from None


def _read_identity(connection: psycopg.Connection[Any]) -> tuple[str, int]:
    """Return (system identifier/database oid, or "" if the server hides it; bytes per page). Without the system
    identifier ids cannot be told from those of a restored copy, so none are given."""
    (row,) = connection.execute(_IDENTITY).fetchall()
    if not row[0]:
        return "", row[2]
    (system,) = connection.execute("SELECT system_identifier FROM pg_control_system()").fetchall()
    return f"{system[0]}/{row[1]}", row[2]


@dataclass(frozen=True, slots=True)
class _Described:
    """One table as the statement describes it."""

    oid: int
    schema: str
    name: str
    kind: str
    usable: bool
    readable: bool
    comment: str | None
    columns: list[list[Any]] | None


def _table(t: _Described, ids: bool) -> Table:
    columns = tuple(_column(c, ids) for c in t.columns or ())
    oid = str(t.oid) if ids else None
    return Table(t.schema, t.name, columns, id=oid, kind=KINDS[t.kind], comment=t.comment)


def _column(c: list[Any], ids: bool) -> Column:
    number, name, native, domain, kind, dimensions, nullable, key, identity, generated, default, comment, _ = c
    mapped = map_type(native, kind, dimensions)
    note = "; ".join(n for n in (f"domain {domain}" if domain else "", mapped.note) if n)
    return Column(
        name,
        mapped.type,
        nullable,
        str(number) if ids else None,
        key or 0,
        _default(default, identity, generated),
        comment,
        native,
        note,
    )


def _default(default: str | None, identity: str, generated: str) -> str | None:
    if identity:
        return f"generated {'always' if identity == 'a' else 'by default'} as identity"
    if generated:
        return f"generated always as ({default}) {'stored' if generated == 's' else 'virtual'}"
    return default


def _denied(t: _Described, user: str) -> Mapping[tuple[str, ...], str]:
    """Return the table, or those of its columns, that this user may not read, with the grants that are missing."""
    to, table = f"TO {quote(user)};", quote_table(t.schema, t.name)
    usage = [] if t.usable else [f"GRANT USAGE ON SCHEMA {quote(t.schema)} {to}"]
    columns = [] if t.readable else t.columns or []
    refused = [c[1] for c in columns if not c[-1]]
    if usage or (not t.readable and len(refused) == len(columns)):
        select = [] if t.readable else [f"GRANT SELECT ON {table} {to}"]
        return {(t.schema, t.name): " ".join(usage + select)}
    return {(t.schema, t.name, name): f"GRANT SELECT ({quote(name)}) ON {table} {to}" for name in refused}
