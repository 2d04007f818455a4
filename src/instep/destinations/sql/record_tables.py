# ruff: noqa: S608 - names are quoted or ours, values are parameters
"""The tables in which a database keeps our records: one row a table that is ours, one a dropped table that waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from instep.destinations.base import Ref
from instep.destinations.sql.records import Record, dump, load
from instep.destinations.sql.session import SCHEMA, SqlSession
from instep.errors import DestinationError

ANOTHER_NAME = "choose another namespace or table name"
_NEW = (
    ("tables", "namespace text, name text, fence bigint NOT NULL, record text NOT NULL", "namespace, name"),
    (
        "dropped",
        "namespace text, place text, name text NOT NULL, source_id text, dropped_at bigint NOT NULL, "
        "record text NOT NULL",
        "namespace, place",
    ),
)


@dataclass(frozen=True)
class DroppedTable:
    """A dropped table: it waits in its schema under the name `place` since `at` (milliseconds since 1970 UTC)."""

    ref: Ref
    place: str
    source_id: str | None
    at: int
    text: str


def named(ref: Ref) -> str:
    return ".".join(ref)


def missing(ref: Ref) -> DestinationError:
    return DestinationError(f"table {named(ref)} is not there", hint="plan again")


def not_ours(session: SqlSession, ref: Ref) -> DestinationError:
    """Return the error for a table that something else made."""
    return DestinationError(
        f"table {named(ref)} exists and is not ours: no record of it is in {session.dialect.place}",
        hint=ANOTHER_NAME,
    )


def prepare(session: SqlSession) -> None:
    """Make the tables of records, if they are not there."""
    if session.has_records("dropped"):
        return
    session.make_schema(SCHEMA)
    for table, columns, key in _NEW:
        more = f", PRIMARY KEY ({key})" if session.dialect.record_keys else ""
        session.run(f"CREATE TABLE IF NOT EXISTS {session.name(SCHEMA, table)} ({columns}{more})")


def find(session: SqlSession, ref: Ref, *, lock: bool = False) -> Record | None:
    """Return the record of a table, or of the session's shard of it; None without one. `lock`: nobody else changes it
    until the transaction ends."""
    record = _whole(session, ref, lock=lock)
    return own_part(session, record) if record else None


def own_part(session: SqlSession, record: Record) -> Record | None:
    """Return the record as the session's shard has it; None if it does not have the table."""
    return record.part(session.part[1], session.part[0]) if session.part else record


def _whole(session: SqlSession, ref: Ref, *, lock: bool) -> Record | None:
    if not session.has_records("dropped"):
        return None
    sql = f"SELECT fence, record FROM {_tables(session)} WHERE namespace = $1 AND name = $2"
    rows = session.run(f"{sql}{session.for_update}" if lock else sql, ref)
    return load(ref, *rows[0]) if rows else None


def every(session: SqlSession) -> dict[Ref, Record]:
    """Return all records, those of copies included."""
    if not session.has_records("dropped"):
        return {}
    rows = session.run(f"SELECT namespace, name, fence, record FROM {_tables(session)}")
    return {(schema, name): load((schema, name), fence, text) for schema, name, fence, text in rows}


def require(session: SqlSession, ref: Ref, *, lock: bool = False) -> Record:
    """Return the record of a table that is ours; DestinationError if it is not there, or somebody else's, or a copy."""
    record = find(session, ref, lock=lock)
    if record is None or record.copy:
        raise not_ours(session, ref) if record or session.is_taken(ref) else missing(ref)
    return record


def require_readable(session: SqlSession, ref: Ref) -> Record:
    """Return the record of a table or copy; while a replacement waits it is the old table."""
    record = find(session, ref)
    if record is None:
        raise not_ours(session, ref) if session.is_taken(ref) else missing(ref)
    return record


def put(session: SqlSession, record: Record, was: Ref | None = None) -> None:
    """Write a record, in place of that of `was` if the table had another name; that of a shard into the whole
    table's."""
    if record.within is not None:
        whole = _whole(session, record.ref, lock=True)
        assert whole is not None, "the transaction has found the shard in it"
        record = whole.merge_shard(record)
    if was is not None and was != record.ref:
        remove(session, record.ref)  # of a table that somebody else has dropped
    values = [*record.ref, record.fence, dump(record)]
    update = f"UPDATE {_tables(session)} SET namespace = $1, name = $2, fence = $3, record = $4"
    if not session.count(f"{update} WHERE namespace = $5 AND name = $6", *values, *(was or record.ref)):
        session.run(f"INSERT INTO {_tables(session)} (namespace, name, fence, record) VALUES ($1, $2, $3, $4)", values)


def remove(session: SqlSession, ref: Ref) -> None:
    session.run(f"DELETE FROM {_tables(session)} WHERE namespace = $1 AND name = $2", ref)


def dropped(session: SqlSession, ref: Ref | None = None) -> list[DroppedTable]:
    """Return the dropped tables that wait, of one name or all; the last one first."""
    if not session.has_records("dropped"):
        return []
    what = "namespace, name, place, source_id, dropped_at, record"
    rows = session.run(f"SELECT {what} FROM {_dropped(session)} ORDER BY dropped_at DESC, place DESC")
    tables = [DroppedTable((schema, name), *more) for schema, name, *more in rows]
    return [d for d in tables if ref is None or d.ref == ref]


def last_dropped(tables: Sequence[DroppedTable], source_id: str | None) -> DroppedTable | None:
    """Return the table that was dropped last among those of one name and had this source id."""
    return next((d for d in tables if d.source_id == source_id), None)


def put_dropped(session: SqlSession, record: Record, place: str, at: int) -> None:
    values = [*record.ref, place, record.table.id, at, dump(record)]
    into = f"INSERT INTO {_dropped(session)} (namespace, name, place, source_id, dropped_at, record)"
    session.run(f"{into} VALUES ($1, $2, $3, $4, $5, $6)", values)


def remove_dropped(session: SqlSession, table: DroppedTable) -> None:
    session.run(f"DELETE FROM {_dropped(session)} WHERE namespace = $1 AND place = $2", [table.ref[0], table.place])


def drop_for_good(session: SqlSession, table: DroppedTable) -> None:
    """Delete a dropped table."""
    session.run(f"DROP TABLE IF EXISTS {session.name(table.ref[0], table.place)}")
    remove_dropped(session, table)


def _tables(session: SqlSession) -> str:
    return session.name(SCHEMA, "tables")


def _dropped(session: SqlSession) -> str:
    return session.name(SCHEMA, "dropped")
