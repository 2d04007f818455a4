"""The index on a table's key, which makes merges fast: unique where the rows allow it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import psycopg

from instep.destinations.base import Ref
from instep.destinations.postgres.records import require
from instep.destinations.postgres.server import PostgresServer, PostgresSession
from instep.destinations.sql.merge import columns, q

INDEX = "_instep_key_"
"""How names of our indexes begin."""
_ROW = "index row"
_OURS = """
SELECT n.nspname, i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
  JOIN pg_namespace n ON n.oid = i.relnamespace
WHERE x.indrelid = to_regclass(%s) AND starts_with(i.relname, %s)
"""


_UNIQUE = """
SELECT count(*) FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
WHERE x.indrelid = to_regclass(%s) AND starts_with(i.relname, %s) AND x.indisunique AND x.indisvalid
  AND x.indpred IS NULL AND x.indexprs IS NULL
  AND (t.relkind = 'p' OR NOT EXISTS (SELECT 1 FROM pg_inherits h WHERE h.inhparent = x.indrelid))
  AND (SELECT array_agg(a.attname::text) FROM pg_attribute a
       WHERE a.attrelid = x.indrelid AND a.attnum = ANY (x.indkey)) <@ %s::text[]
"""


def proves_unique(session: PostgresSession, table: str, key: Sequence[str]) -> bool:
    """Return whether an index of ours allows for no two rows of the table, as SQL calls it, that share the key. It says
    nothing of rows in tables that inherit from this one, which statements see, too; of those in partitions it does."""
    return session.count(_UNIQUE, table, INDEX, list(key)) > 0


def index(session: PostgresSession, table: str, key: Sequence[str], place: str, *, unique: bool = True) -> None:
    """Indexes the key of the table that SQL calls `table`. Rows that share a key get an index that allows for them,
    keys too long for one, or of a type that has no order, get none. `place`: of its record."""
    for kind in ("UNIQUE INDEX", "INDEX") if unique else ("INDEX",):
        try:
            with session.attempt():
                name = f"{INDEX}{place[:8]}_{secrets.token_hex(4)}"
                session.run(f"CREATE {kind} {q(name)} ON {table} ({columns(key)})")
        except psycopg.errors.UniqueViolation:
            continue
        except (psycopg.errors.ProgramLimitExceeded, psycopg.errors.UndefinedObject):
            return
        return


def reindex(session: PostgresSession, table: str, key: Sequence[str], place: str) -> None:
    """The index for another key; none without one."""
    unindex(session, table)
    if key:
        index(session, table, key, place)


def unindex(session: PostgresSession, table: str) -> bool:
    """Drop ours; whether there was one."""
    found = session.run(_OURS, [table, INDEX])
    for schema, name in found:
        session.run(f"DROP INDEX {session.name(schema, name)}")
    return bool(found)


def loosen(server: PostgresServer, ref: Ref, error: BaseException | None) -> bool:
    """Put an index that allows for them, or none, in the place of ours if that is what rows did not fit; False if it
    was something else."""
    twins = isinstance(error, psycopg.errors.UniqueViolation) and INDEX in str(error)
    if not twins and not (isinstance(error, psycopg.errors.ProgramLimitExceeded) and _ROW in str(error)):
        return False
    with server.writing() as session:
        record, table = require(session, ref, lock=True), session.name(*ref)
        if not unindex(session, table):
            return False
        if twins:
            index(session, table, record.table.key, record.place, unique=False)
    return True
