"""What the values of rows rest on beside the rows: statements that change it write no row that a cursor finds.

Such statements rename a label of an enum or a field of a composite type, give a generated column another expression
or a view another query, or rewrite all rows (`ALTER COLUMN ... TYPE same USING ...`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from instep.sources.log import FILE, SINCE
from instep.sources.postgres.replaced_rows import RowFile, RowFiles
from instep.sources.postgres.types import literal

if TYPE_CHECKING:
    import psycopg

Ref = tuple[str, str]
KINDS = """
  WITH RECURSIVE kinds(oid) AS (
    SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION
    SELECT x.oid FROM kinds JOIN pg_type y ON y.oid = kinds.oid
      LEFT JOIN pg_attribute f ON f.attrelid = y.typrelid AND f.attnum > 0 AND NOT f.attisdropped
      LEFT JOIN pg_range g ON y.typtype IN ('r', 'm') AND y.oid IN (g.rngtypid, (to_jsonb(g) ->> 'rngmultitypid')::oid),
      LATERAL unnest(ARRAY[y.typelem, y.typbasetype, f.atttypid, g.rngsubtype]) x(oid) WHERE x.oid <> 0)
  SELECT
    (SELECT min(y.typname) FROM kinds JOIN pg_type y ON y.oid = kinds.oid
      WHERE y.typnamespace = 'pg_catalog'::regnamespace AND y.typname ~ '^(reg[a-z]+|aclitem)$') AS alias,
    (SELECT json_object_agg(e.oid, e.enumlabel) FROM pg_enum e WHERE e.enumtypid IN (SELECT oid FROM kinds)) AS labels,
    (SELECT json_object_agg('fields ' || f.oid, f.said) FROM (
       SELECT y.oid, json_agg(json_build_array(f.attnum, f.attname, f.atttypid::int8, f.atttypmod) ORDER BY f.attnum)
         FROM pg_type y JOIN pg_attribute f ON f.attrelid = y.typrelid AND f.attnum > 0 AND NOT f.attisdropped
        WHERE y.oid IN (SELECT oid FROM kinds) GROUP BY y.oid) f(oid, said)) AS fields,
    (SELECT json_object_agg('formula ' || d.adnum, d.oid::text) FROM pg_attrdef d JOIN pg_attribute a
       ON a.attrelid = d.adrelid AND a.attnum = d.adnum WHERE d.adrelid = c.oid AND a.attgenerated <> '') AS formulas
"""
"""A query of the types that the columns of the table `c` consist of: one whose values are the names of other objects,
labels of enums by oid, fields of composite types, and what computes generated columns."""
BORN = """EXISTS (SELECT FROM pg_attribute own JOIN pg_attribute a ON a.attrelid = own.attrelid
    WHERE own.attrelid = c.oid AND own.attnum = -6 AND a.attnum > 0 AND NOT a.attisdropped
      AND a.xmin = own.xmin AND a.cmin = own.cmin)"""
"""Whether the table `c` was created as a partition, if it is one: attaching writes all columns of a table anew, while
tableoid's row never changes."""
# A column that gets another type is not the column that it was: that is a change of the schema, and told as one.
_DEFINITIONS = """
SELECT n.nspname, c.relname, k.labels, k.fields, k.formulas,
  CASE c.relkind WHEN 'p' THEN (
    WITH RECURSIVE tree(oid) AS (
      SELECT h.inhrelid FROM pg_inherits h WHERE h.inhparent = c.oid
      UNION ALL
      SELECT h.inhrelid FROM tree t JOIN pg_inherits h ON h.inhparent = t.oid)
    SELECT string_agg(m.oid || '.' || m.relfilenode, ',' ORDER BY m.oid) FROM tree t JOIN pg_class m ON m.oid = t.oid)
  ELSE c.relfilenode::text END,
  (SELECT json_object_agg(a.attnum || ' ' || a.atttypid::int8 || '.' || a.atttypmod, a.xmin::text)
     FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  (SELECT r.xmin::text FROM pg_rewrite r WHERE r.ev_class = c.oid AND c.relkind = 'v' AND r.rulename = '_RETURN'),
  (WITH RECURSIVE tree(oid, since) AS (
      SELECT c.oid, '' WHERE c.relkind IN ('r', 'p')
      UNION ALL
      SELECT h.inhrelid, h.xmin::text FROM tree t JOIN pg_inherits h ON h.inhparent = t.oid)
    SELECT json_agg(json_build_array(t.oid::int8, t.since, c.relfilenode::int8, {born}, n.nspname, c.relname,
        has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE')))
      FROM tree t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE c.relkind = 'r'),
  txid_snapshot_xmin(txid_current_snapshot()), txid_snapshot_xmax(txid_current_snapshot())
FROM (VALUES {values}) w(schema, name)
JOIN pg_namespace n ON n.nspname = w.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
CROSS JOIN LATERAL ({kinds}) k
"""


def value_definitions(
    connection: psycopg.Connection[Any], refs: Sequence[Ref], before: Mapping[Ref, Mapping[str, str]]
) -> dict[Ref, dict[str, str]]:
    """Return the definitions of the tables that exist, given those of an earlier snapshot."""
    values = ", ".join(f"({literal(s)}, {literal(n)})" for s, n in refs)
    statement = _DEFINITIONS.format(values=values, kinds=KINDS, born=BORN)
    definitions = {}
    rows = connection.execute(statement.encode()).fetchall()
    for schema, name, labels, fields, formulas, file, columns, query, files, settled, following in rows:
        own = {FILE: _short(file or ""), **({"query": query} if query else {})}
        own |= {f"{SINCE}{column}": xid for column, xid in (columns or {}).items()}
        own |= {f"label {oid}": label for oid, label in (labels or {}).items()}
        found = own | shortened(fields) | (formulas or {})
        if files:
            of_rows = RowFiles((schema, name), settled, following, tuple(RowFile(*f) for f in files))
            found |= of_rows.definition(connection, before.get((schema, name), {}), found)
        definitions[schema, name] = found
    return definitions


def shortened(documents: Mapping[str, Any] | None) -> dict[str, str]:
    """Return a digest for each of these documents."""
    return {name: _short(json.dumps(of)) for name, of in (documents or {}).items()}


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
