"""Dependants of a table: views, foreign keys and functions of others, and what a new table would lack.

The index on a table's key, which makes merges fast: unique where the rows allow it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import psycopg

from instep.destinations.base import Ref
from instep.destinations.sql.merge import columns, q
from instep.schema.planning.guard import LayoutGuard

if TYPE_CHECKING:
    from instep.destinations.postgres.session import PostgresSession

_FIND = """
SELECT DISTINCT n.nspname, c.relname, coalesce(a.attname, ''), CASE WHEN d.classid = 'pg_rewrite'::regclass
    THEN (SELECT pg_describe_object('pg_class'::regclass, r.ev_class, 0) FROM pg_rewrite r WHERE r.oid = d.objid)
    ELSE pg_describe_object(d.classid, d.objid, 0) END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN unnest($1::text[], $2::text[]) AS w(namespace, name) ON n.nspname = w.namespace AND c.relname = w.name
  JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND d.deptype = 'n'
  LEFT JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid AND a.attnum > 0
ORDER BY 4
"""


def _found(session: PostgresSession, refs: Sequence[Ref]) -> list[tuple[Ref, str, str]]:
    """Return (table, column or "", what needs it), in people's names."""
    rows = session.run(_FIND, [[r[0] for r in refs], [r[1] for r in refs]]) if refs else []
    return [((schema, name), column, what) for schema, name, column, what in rows]


def dependants(session: PostgresSession, ref: Ref, columns: Iterable[str] | None = None) -> list[str]:
    """Return other objects that read or reference the table, or these columns of it."""
    requested = None if columns is None else set(columns)
    dependencies = _found(session, [ref])
    return sorted({what for _, column, what in dependencies if requested is None or column in requested})


def guards(session: PostgresSession, refs: Sequence[Ref]) -> dict[Ref, dict[str, tuple[LayoutGuard, ...]]]:
    """Return guards for a plan, so that it contains no step that would be refused."""
    guards_of: dict[Ref, dict[str, tuple[LayoutGuard, ...]]] = {}
    for ref, column, what in _found(session, refs):
        of_table = guards_of.setdefault(ref, {})
        of_table[column] = (*of_table.get(column, ()), LayoutGuard(what, f"drop {what}", widens=False))
    return guards_of


_PLAIN = """
SELECT c.relkind = 'r' AND NOT c.relispartition AND NOT c.relrowsecurity AND c.relreplident = 'd'
  AND c.reltablespace = 0 AND c.reloptions IS NULL AND c.relowner = n.relowner
  AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
    AND d.deptype = 'n')
  AND NOT EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgrelid = c.oid)
  AND NOT EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid)
  AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype <> 'n')
  AND NOT EXISTS (SELECT 1 FROM pg_inherits i WHERE c.oid IN (i.inhparent, i.inhrelid))
  AND NOT EXISTS (SELECT 1 FROM pg_publication_rel p WHERE p.prrelid = c.oid)
  AND NOT EXISTS (SELECT 1 FROM pg_statistic_ext s WHERE s.stxrelid = c.oid)
  AND NOT EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attacl IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid WHERE x.indrelid = c.oid
    AND NOT starts_with(i.relname, $1))
FROM pg_class c, pg_class n WHERE c.oid = to_regclass($2) AND n.oid = to_regclass($3)
"""


def is_plain(session: PostgresSession, ref: Ref, new: str, ours: str) -> bool:
    """Return whether nobody would miss the table if `new` (an SQL name) stood in its place: no rights, views, triggers
    or indexes of others are on it. The names of our own indexes begin with `ours`."""
    return session.run(_PLAIN, [ours, session.name(*ref), new]) == [(True,)]


_RIGHTS = """
SELECT x.grantee::regrole::text, x.privilege_type, x.is_grantable FROM pg_class c,
  aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) x
WHERE c.oid = to_regclass($1) AND x.grantee <> c.relowner
"""


def copy_rights(session: PostgresSession, table: str, new: str) -> None:
    """Grant `new` exactly the privileges of `table` (both are SQL names)."""
    old, now = ({tuple(row) for row in session.run(_RIGHTS, [name])} for name in (table, new))
    for grantee, right, _ in now - old:
        session.run(f"REVOKE {right} ON {new} FROM {_role(grantee)}")
    for grantee, right, grantable in old - now:
        session.run(f"GRANT {right} ON {new} TO {_role(grantee)}{' WITH GRANT OPTION' if grantable else ''}")


def _role(name: str) -> str:
    """Return a role as the catalog spells it, quoted where needed; `-` means everybody."""
    return "PUBLIC" if name == "-" else name


INDEX = "_instep_key_"
"""Beginning of the names of our indexes."""
_ROW = "index row"
_OURS = """
SELECT n.nspname, i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
  JOIN pg_namespace n ON n.oid = i.relnamespace
WHERE x.indrelid = to_regclass($1) AND starts_with(i.relname, $2)
"""


_UNIQUE = """
SELECT count(*) FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
WHERE x.indrelid = to_regclass($1) AND starts_with(i.relname, $2) AND x.indisunique AND x.indisvalid
  AND x.indpred IS NULL AND x.indexprs IS NULL
  AND (t.relkind = 'p' OR NOT EXISTS (SELECT 1 FROM pg_inherits h WHERE h.inhparent = x.indrelid))
  AND (SELECT array_agg(a.attname::text) FROM pg_attribute a
       WHERE a.attrelid = x.indrelid AND a.attnum = ANY (x.indkey)) <@ $3::text[]
"""


def proves_unique(session: PostgresSession, table: str, key: Sequence[str]) -> bool:
    """Return whether an index of ours allows for no two rows of the table, as SQL calls it, that share the key. It says
    nothing of rows in tables that inherit from this one, which statements see, too; of those in partitions it does."""
    return session.count(_UNIQUE, table, INDEX, list(key)) > 0


def index(session: PostgresSession, table: str, key: Sequence[str], place: str, *, unique: bool = True) -> None:
    """Index the key of the table that SQL calls `table`. Duplicates get an index that allows them; keys too long for
    one or of a type without an order get none, as does a table without a key. `place`: of its record."""
    for kind in ("UNIQUE INDEX", "INDEX") if unique and key else ("INDEX",) if key else ():
        try:
            with session.attempt():
                name = f"{INDEX}{place[:8]}_{secrets.token_hex(4)}"
                session.run(f"CREATE {kind} {q(name)} ON {table} ({columns(key)})")
        except psycopg.errors.UniqueViolation:
            continue
        except (psycopg.errors.ProgramLimitExceeded, psycopg.errors.UndefinedObject):
            return
        return


def unindex(session: PostgresSession, table: str) -> bool:
    """Drop ours; whether there was one."""
    indexes = session.run(_OURS, [table, INDEX])
    for schema, name in indexes:
        session.run(f"DROP INDEX {session.name(schema, name)}")
    return bool(indexes)


def unindexable(error: BaseException | None) -> str:
    """Return how rows did not fit an index of ours: "twins" or "length"; "" if it was something else."""
    if isinstance(error, psycopg.errors.UniqueViolation) and INDEX in str(error):
        return "twins"
    return "length" if isinstance(error, psycopg.errors.ProgramLimitExceeded) and _ROW in str(error) else ""
