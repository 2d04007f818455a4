# ruff: noqa: S608 - names are quoted
"""What is kept beside the tables: dropped columns and tables until their time is over, and copies."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from instep.destinations.base import Commit, Ref, Revival
from instep.destinations.duckdb.ddl import make, now_ms, parked, with_types
from instep.destinations.duckdb.file import DatabaseFile, Session
from instep.destinations.duckdb.load import loading, rows
from instep.destinations.duckdb.records import dropped, find, named, prepare, put, remove, remove_dropped
from instep.destinations.duckdb.shape import physical
from instep.destinations.sql.evolve import latest
from instep.destinations.sql.merge import columns, q
from instep.destinations.sql.records import Record
from instep.errors import Conflict, DestinationError

DAY_MS = 86_400_000


def is_kept(file: DatabaseFile, ref: Ref, source_id: str | None) -> bool:
    """Whether the table of this name and source id was dropped and waits, or is back."""
    with file.reading() as session:
        return session is not None and (find(session, ref) is not None or parked(session, ref, source_id) is not None)


def revival(file: DatabaseFile, ref: Ref, column: str) -> Revival:
    """A dropped column waits in the table itself: only rows that came since have no value in it."""
    with file.reading() as session:
        record = find(session, ref) if session is not None else None
        there = {p.name for p in physical(session).get(ref, ())} if session is not None else set[str]()
    if record is None:
        return Revival(f"table {named(ref)} is not there")
    old = latest(record.parked, column)
    if old is None:
        return (
            Revival()
            if column in record.table.by_name.keys() & there
            else Revival(f"no column {column!r} is kept any more")
        )
    return Revival(written=old.written)


def forget(file: DatabaseFile, refs: Iterable[Ref], fence: int, days: float) -> list[str]:
    """Deletes the columns of these tables, and all tables, that were dropped more than `days` ago; their names."""
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


def _forget(session: Session, record: Record, limit: float) -> list[str]:
    old = [p for p in record.parked if p.at < limit]
    for column in old:
        session.run(f"ALTER TABLE {session.name(*record.ref)} DROP COLUMN {q(column.place)}")
    left = tuple(p for p in record.parked if p not in old)
    put(session, with_types(session, replace(record, parked=left, version=record.version + 1)))
    return [f"{named(record.ref)}.{p.name}" for p in old]


def keep(file: DatabaseFile, ref: Ref, place: Ref, commit: Commit) -> int | None:
    """Copies the rows to `place` and returns how many; None, and no copy, for a table without rows."""
    with loading(file, ref, commit) as (session, record):
        count = rows(session, record)
        if record.state is None or not count:
            return None
        origin = json.dumps([record.place, record.version])
        if (there := find(session, place)) is not None and there.copy == origin:
            return count
        if there is not None:
            raise Conflict(f"table {named(place)} is there already", hint="rename or purge that one first")
        table = replace(record.table, schema=place[0], name=place[1])
        made = make(session, replace(record, table=table, place=f"copy of {record.place}", parked=(), copy=origin))
        names = columns([c.name for c in table.columns])
        session.run(f"INSERT INTO {session.name(*place)} ({names}) SELECT {names} FROM {session.name(*ref)}")
        put(session, made)
    return count


def purge(file: DatabaseFile, place: Ref) -> None:
    """Deletes a copy; one that is gone is fine. DestinationError for a table that is no copy."""
    with file.writing() as session:
        prepare(session)
        record = find(session, place)
        if record is None:
            return
        if not record.copy:
            raise DestinationError(
                f"table {named(place)} is no copy of ours", hint="it is left alone: look at it first"
            )
        session.run(f"DROP TABLE {session.name(*place)}")
        remove(session, place)
