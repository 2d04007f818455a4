# ruff: noqa: S608 - names are quoted
"""What is kept beside the tables: dropped columns and tables until their time is over, and copies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from instep.destinations.base import Commit, Ref, UndropReport
from instep.destinations.duckdb.ddl import make, with_types
from instep.destinations.duckdb.file import DuckDbFacet, DuckDbSession
from instep.destinations.duckdb.load import loading, rows
from instep.destinations.duckdb.records import dropped, find, physical, prepare, put, remove, remove_dropped
from instep.destinations.sql.alter import named, now_ms, parked
from instep.destinations.sql.evolve import DAY_MS, check_copy, copy_of, is_made, undrop_report_of
from instep.destinations.sql.merge import columns, q
from instep.destinations.sql.records import Record


def _forget(session: DuckDbSession, record: Record, limit: float) -> list[str]:
    old = [p for p in record.parked if p.at < limit]
    for column in old:
        session.run(f"ALTER TABLE {session.name(*record.ref)} DROP COLUMN {q(column.place)}")
    left = tuple(p for p in record.parked if p not in old)
    put(session, with_types(session, replace(record, parked=left, version=record.version + 1)))
    return [f"{named(record.ref)}.{p.name}" for p in old]


class DuckDbRetention(DuckDbFacet):
    """What was dropped."""

    def dropped(self, ref: Ref, source_id: str | None) -> bool:
        """Return whether the table of this name and source id was dropped and waits, or is back."""
        with self.file.reading() as session:
            return session is not None and (
                find(session, ref) is not None or parked(dropped(session, ref), source_id) is not None
            )

    def undrop_report(self, ref: Ref, column: str) -> UndropReport:
        with self.file.reading() as session:
            if session is None:
                return undrop_report_of(ref, None, column, ())
            return undrop_report_of(ref, find(session, ref), column, [p.name for p in physical(session).get(ref, ())])

    def purge_expired(self, refs: Iterable[Ref], fence: int) -> list[str]:
        """Deletes the columns of these tables, and all tables, that were dropped too long ago; their names."""
        if not self.file.exists():
            return []
        gone, limit = list[str](), now_ms() - self.config.undo_days * DAY_MS
        with self.file.writing() as session:
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


class DuckDbClones(DuckDbFacet):
    """Copies of tables."""

    def clone_table(self, ref: Ref, place: Ref, commit: Commit) -> int | None:
        """Copies the rows to `place` and returns how many; None, and no copy, for a table without rows."""
        with loading(self.file, ref, commit) as (session, record):
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

    def purge_clone(self, place: Ref, fence: int) -> None:
        """Deletes a copy; one that is gone is fine. DestinationError for a table that is no copy."""
        with self.file.writing() as session:
            prepare(session)
            record = find(session, place)
            if record is None:
                return
            check_copy(record)
            session.run(f"DROP TABLE {session.name(*place)}")
            remove(session, place)
