"""The index on a table's key, which makes merges fast: unique where the rows allow it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import psycopg

from instep.destinations.base import Ref
from instep.destinations.postgres.records import require
from instep.destinations.postgres.server import Server, Session
from instep.destinations.sql.merge import columns, q

INDEX = "_instep_key_"
"""How names of our indexes begin."""
_OURS = """
SELECT n.nspname, i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
  JOIN pg_namespace n ON n.oid = i.relnamespace
WHERE x.indrelid = to_regclass(%s) AND starts_with(i.relname, %s)
"""


def index(session: Session, table: str, key: Sequence[str], place: str) -> None:
    """Indexes the key of the table that SQL calls `table`. Rows that share a key get an index that allows for them,
    keys too long for one, or of a type that has no order, get none. `place`: of its record."""
    if not key:
        return
    for kind in ("UNIQUE INDEX", "INDEX"):
        try:
            with session.attempt():
                name = f"{INDEX}{place[:8]}_{secrets.token_hex(4)}"
                session.run(f"CREATE {kind} {q(name)} ON {table} ({columns(key)})")
        except psycopg.errors.UniqueViolation:
            continue
        except (psycopg.errors.ProgramLimitExceeded, psycopg.errors.UndefinedObject):
            return
        return


def reindex(session: Session, table: str, key: Sequence[str], place: str) -> None:
    """The index for another key."""
    unindex(session, table)
    index(session, table, key, place)


def unindex(session: Session, table: str) -> None:
    for schema, name in session.run(_OURS, [table, INDEX]):
        session.run(f"DROP INDEX {session.name(schema, name)}")


def loosen(server: Server, ref: Ref) -> bool:
    """Takes the index away that rows to come do not fit; whether there was one."""
    with server.writing() as session:
        require(session, ref, lock=True)
        table = session.name(*ref)
        if not session.run(_OURS, [table, INDEX]):
            return False
        unindex(session, table)
    return True


def is_ours(error: BaseException) -> bool:
    """Whether rows did not fit an index of ours."""
    if not isinstance(error, psycopg.errors.UniqueViolation | psycopg.errors.ProgramLimitExceeded):
        return False
    return INDEX in str(error)
