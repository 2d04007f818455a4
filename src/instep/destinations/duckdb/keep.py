# ruff: noqa: S608 - names are quoted
"""What is kept beside the tables: dropped columns and tables until their time is over, and copies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from instep.destinations.base import Commit, Ref, UndropReport
from instep.destinations.duckdb.ddl import make, now_ms, parked, with_types
from instep.destinations.duckdb.file import DatabaseFile, DuckDbSession
from instep.destinations.duckdb.load import loading, rows
from instep.destinations.duckdb.records import dropped, find, named, prepare, put, remove, remove_dropped
from instep.destinations.duckdb.shape import physical
from instep.destinations.sql.keep import DAY_MS, check_copy, copy_of, is_made, undrop_report_of
from instep.destinations.sql.merge import columns, q
from instep.destinations.sql.records import Record


def is_kept(file: DatabaseFile, ref: Ref, source_id: str | None) -> bool:
    """Return whether the table of this name and source id was dropped and waits, or is back."""
    with file.reading() as session:
        return session is not None and (find(session, ref) is not None or parked(session, ref, source_id) is not None)


def undrop_report(file: DatabaseFile, ref: Ref, column: str) -> UndropReport:
    with file.reading() as session:
        if session is None:
            return undrop_report_of(ref, None, column, ())
        return undrop_report_of(ref, find(session, ref), column, [p.name for p in physical(session).get(ref, ())])


def forget(file: DatabaseFile, refs: Iterable[Ref], fence: int, days: float) -> list[str]:
    """Delete the columns of these tables, and all tables, that were dropped more than `days` ago; their names."""
    if not file.exists():
        return []
    gone, limit = list[str](), now_ms() - days * DAY_MS
    with file.writing() as session:
        prepare(session)
        for ref in refs:
            record = find(session, ref)
            if record is not None and any(p.at < limit for p in record.parked):
                record.check(fence)
                gone += _forget(session, record, limit)
        for old in dropped(session):
            if old.at < limit:
                session.run(f"DROP TABLE {session.name(old.ref[0], old.place)}")
                remove_dropped(session, old)
                gone.append(named(old.ref))
    return gone


def _forget(session: DuckDbSession, record: Record, limit: float) -> list[str]:
    old = [p for p in record.parked if p.at < limit]
    for column in old:
        session.run(f"ALTER TABLE {session.name(*record.ref)} DROP COLUMN {q(column.place)}")
    left = tuple(p for p in record.parked if p not in old)
    put(session, with_types(session, replace(record, parked=left, version=record.version + 1)))
    return [f"{named(record.ref)}.{p.name}" for p in old]


def keep(file: DatabaseFile, ref: Ref, place: Ref, commit: Commit) -> int | None:
    """Copy the rows to `place` and return how many; None, and no copy, for a table without rows."""
    with loading(file, ref, commit) as (session, record):
        count = rows(session, record)
        if record.state is None or not count:
            return None
        made = copy_of(record, place)
        if is_made(made, find(session, place)):
            return count
        made = make(session, made)
        names = columns([c.name for c in made.table.columns])
        session.run(f"INSERT INTO {session.name(*place)} ({names}) SELECT {names} FROM {session.name(*ref)}")
        put(session, made)
    return count


def purge(file: DatabaseFile, place: Ref) -> None:
    """Delete a copy; one that is gone is fine. DestinationError for a table that is no copy."""
    with file.writing() as session:
        prepare(session)
        record = find(session, place)
        if record is None:
            return
        check_copy(record)
        session.run(f"DROP TABLE {session.name(*place)}")
        remove(session, place)
