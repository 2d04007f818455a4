# ruff: noqa: S608 - names are quoted or ours
"""The tables in which the file keeps its records: one row a table that is ours, one a dropped table that waits."""

from __future__ import annotations

from collections.abc import Iterable

from instep.destinations.base import Ref
from instep.destinations.duckdb.file import DuckDbSession
from instep.destinations.duckdb.shape import physical
from instep.destinations.sql.alter import SCHEMA, DroppedTable, foreign, missing
from instep.destinations.sql.records import Record, dump, load
from instep.errors import DestinationError

_NEW = (
    "CREATE TABLE IF NOT EXISTS {tables} (namespace VARCHAR, name VARCHAR, fence BIGINT, record VARCHAR)",
    "CREATE TABLE IF NOT EXISTS {dropped} (namespace VARCHAR, name VARCHAR, place VARCHAR, source_id VARCHAR, "
    "dropped_at BIGINT, record VARCHAR)",
    "CREATE TABLE IF NOT EXISTS {views} (namespace VARCHAR, name VARCHAR, record VARCHAR)",
)


def _tables(session: DuckDbSession) -> str:
    return session.name(SCHEMA, "tables")


def _dropped(session: DuckDbSession) -> str:
    return session.name(SCHEMA, "dropped")


def begun(session: DuckDbSession, table: str = "dropped") -> bool:
    """Return whether the file has this table of records; looked up once while the file is open."""
    if table not in session.ours:
        sql = "SELECT count(*) FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?"
        session.ours.update([table] if session.count(sql, session.catalog, SCHEMA, table) else [])
    return table in session.ours


def prepare(session: DuckDbSession) -> None:
    """Make the tables of records, if they are not there."""
    if begun(session) and begun(session, "views"):
        return
    session.run(f"CREATE SCHEMA IF NOT EXISTS {session.schema(SCHEMA)}")
    views = session.name(SCHEMA, "views")
    for statement in _NEW:
        session.run(statement.format(tables=_tables(session), dropped=_dropped(session), views=views))


def find(session: DuckDbSession, ref: Ref) -> Record | None:
    """Return the record of a table, or of the session's shard of it; None without one."""
    record = _whole(session, ref)
    return record.part(session.part[1], session.part[0]) if record and session.part else record


def _whole(session: DuckDbSession, ref: Ref) -> Record | None:
    if not begun(session):
        return None
    sql = f"SELECT fence, record FROM {_tables(session)} WHERE namespace = ? AND name = ?"
    rows = session.run(sql, ref)
    return load(ref, *rows[0]) if rows else None


def every(session: DuckDbSession) -> dict[Ref, Record]:
    """Return all records, those of copies included."""
    if not begun(session):
        return {}
    rows = session.run(f"SELECT namespace, name, fence, record FROM {_tables(session)}")
    return {(schema, name): load((schema, name), fence, text) for schema, name, fence, text in rows}


def not_ours(ref: Ref) -> DestinationError:
    """Return what is said of a table that something else made."""
    return foreign(ref, "the file")


def require(session: DuckDbSession, ref: Ref) -> Record:
    """Return the record of a table that is ours; DestinationError if it is not there, or somebody else's, or a copy."""
    record = find(session, ref)
    if record is None or record.copy:
        raise not_ours(ref) if record or is_taken(session, ref) else missing(ref)
    return record


def is_taken(session: DuckDbSession, ref: Ref) -> bool:
    """Return whether the file has a table or view of this name, in any case."""
    return twin(ref, physical(session)) is not None


def twin(ref: Ref, there: Iterable[Ref]) -> Ref | None:
    """Return the table that DuckDB means by this name."""
    return next(
        (r for r in there if (r[0].casefold(), r[1].casefold()) == (ref[0].casefold(), ref[1].casefold())), None
    )


def put(session: DuckDbSession, record: Record, was: Ref | None = None) -> None:
    """Write a record, in the place of that of `was` if the table had another name; that of a shard into the whole
    table's."""
    if record.within is not None:
        whole = _whole(session, record.ref)
        assert whole is not None, "the transaction has found the shard in it"
        record = whole.together(record)
    remove(session, was or record.ref)
    values = [*record.ref, record.fence, dump(record)]
    session.run(f"INSERT INTO {_tables(session)} VALUES (?, ?, ?, ?)", values)


def remove(session: DuckDbSession, ref: Ref) -> None:
    session.run(f"DELETE FROM {_tables(session)} WHERE namespace = ? AND name = ?", ref)


def dropped(session: DuckDbSession, ref: Ref | None = None) -> list[DroppedTable]:
    """Return the dropped tables that wait, of one name or all; the last one first."""
    if not begun(session):
        return []
    what = "namespace, name, place, source_id, dropped_at, record"
    sql = f"SELECT {what} FROM {_dropped(session)} ORDER BY dropped_at DESC, place DESC"
    rows = session.run(sql)
    found = [DroppedTable((schema, name), *more) for schema, name, *more in rows]
    return [d for d in found if ref is None or d.ref == ref]


def put_dropped(session: DuckDbSession, record: Record, place: str, at: int) -> None:
    values = [*record.ref, place, record.table.id, at, dump(record)]
    session.run(f"INSERT INTO {_dropped(session)} VALUES (?, ?, ?, ?, ?, ?)", values)


def remove_dropped(session: DuckDbSession, one: DroppedTable) -> None:
    sql = f"DELETE FROM {_dropped(session)} WHERE namespace = ? AND place = ?"
    session.run(sql, [one.ref[0], one.place])
