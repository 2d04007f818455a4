# ruff: noqa: S608 - names are quoted or ours, values are parameters
"""The tables in which the server keeps our records: one row a table that is ours, one a dropped table that waits."""

from __future__ import annotations

from instep.destinations.base import Ref
from instep.destinations.postgres.server import PostgresSession
from instep.destinations.sql.alter import SCHEMA, DroppedTable, foreign, missing
from instep.destinations.sql.records import Record, dump, load
from instep.errors import DestinationError

_LOCK = 7_305_804_402_000_001
_NEW = (
    "CREATE TABLE IF NOT EXISTS _instep.tables (namespace text, name text, fence bigint NOT NULL, record text NOT NULL,"
    " PRIMARY KEY (namespace, name))",
    "CREATE TABLE IF NOT EXISTS _instep.dropped (namespace text, place text, name text NOT NULL, source_id text, "
    "dropped_at bigint NOT NULL, record text NOT NULL, PRIMARY KEY (namespace, place))",
)


def begun(session: PostgresSession) -> bool:
    """Return whether anything of ours has ever been on the server."""
    return session.count("SELECT count(*) FROM pg_class WHERE oid = to_regclass('_instep.dropped')") > 0


def prepare(session: PostgresSession) -> None:
    """Make the tables of records, if they are not there."""
    if not begun(session):
        make_schema(session, SCHEMA)
        for statement in _NEW:
            session.run(statement)


def make_schema(session: PostgresSession, name: str) -> None:
    """Make a schema, if it is not there; one at a time, as two who make it at once meet in the catalog."""
    known = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
    if not session.count(known, name):
        session.run(f"SELECT pg_advisory_xact_lock({_LOCK})")
        session.run(f"CREATE SCHEMA IF NOT EXISTS {session.schema(name)}")


def find(session: PostgresSession, ref: Ref, *, lock: bool = False) -> Record | None:
    """Return the record of a table, or of the session's shard of it; None without one. `lock`: nobody else changes it
    until the transaction ends."""
    record = _whole(session, ref, lock=lock)
    return record.part(session.part[1], session.part[0]) if record and session.part else record


def _whole(session: PostgresSession, ref: Ref, *, lock: bool) -> Record | None:
    if not begun(session):
        return None
    sql = "SELECT fence, record FROM _instep.tables WHERE namespace = %s AND name = %s"
    rows = session.run(f"{sql} FOR UPDATE" if lock else sql, ref)
    return load(ref, *rows[0]) if rows else None


def every(session: PostgresSession) -> dict[Ref, Record]:
    """Return all records, those of copies included."""
    if not begun(session):
        return {}
    rows = session.run("SELECT namespace, name, fence, record FROM _instep.tables")
    return {(schema, name): load((schema, name), fence, text) for schema, name, fence, text in rows}


def not_ours(ref: Ref) -> DestinationError:
    """Return what is said of a table that something else made."""
    return foreign(ref, "the database")


def require(session: PostgresSession, ref: Ref, *, lock: bool = False) -> Record:
    """Return the record of a table that is ours; DestinationError if it is not there, or somebody else's, or a copy."""
    record = find(session, ref, lock=lock)
    if record is None or record.copy:
        raise not_ours(ref) if record or is_taken(session, ref) else missing(ref)
    return record


def is_taken(session: PostgresSession, ref: Ref) -> bool:
    """Return whether anything has this name."""
    sql = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    return session.count(f"{sql} WHERE n.nspname = %s AND c.relname = %s", *ref) > 0


def put(session: PostgresSession, record: Record, was: Ref | None = None) -> None:
    """Write a record, in the place of that of `was` if the table had another name; that of a shard into the whole
    table's."""
    if record.within is not None:
        whole = _whole(session, record.ref, lock=True)
        assert whole is not None, "the transaction has found the shard in it"
        record = whole.together(record)
    if was is not None and was != record.ref:
        remove(session, was)
    session.run(
        "INSERT INTO _instep.tables VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (namespace, name) DO UPDATE SET fence = excluded.fence, record = excluded.record",
        [*record.ref, record.fence, dump(record)],
    )


def remove(session: PostgresSession, ref: Ref) -> None:
    session.run("DELETE FROM _instep.tables WHERE namespace = %s AND name = %s", ref)


def dropped(session: PostgresSession, ref: Ref | None = None) -> list[DroppedTable]:
    """Return the dropped tables that wait, of one name or all; the last one first."""
    if not begun(session):
        return []
    what = "namespace, name, place, source_id, dropped_at, record"
    rows = session.run(f"SELECT {what} FROM _instep.dropped ORDER BY dropped_at DESC, place DESC")
    found = [DroppedTable((schema, name), *more) for schema, name, *more in rows]
    return [d for d in found if ref is None or d.ref == ref]


def put_dropped(session: PostgresSession, record: Record, place: str, at: int) -> None:
    values = [record.ref[0], place, record.ref[1], record.table.id, at, dump(record)]
    session.run("INSERT INTO _instep.dropped VALUES (%s, %s, %s, %s, %s, %s)", values)


def remove_dropped(session: PostgresSession, one: DroppedTable) -> None:
    session.run("DELETE FROM _instep.dropped WHERE namespace = %s AND place = %s", [one.ref[0], one.place])
