# ruff: noqa: S608 - names are quoted
"""What is kept beside the tables: dropped columns and tables until their time is over, and copies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from instep.destinations.base import Commit, Ref, UndropReport
from instep.destinations.postgres.ddl import make, with_types
from instep.destinations.postgres.dependants import dependants, index
from instep.destinations.postgres.load import loading, rows
from instep.destinations.postgres.records import dropped, find, prepare, put, remove, remove_dropped
from instep.destinations.postgres.server import PostgresFacet, PostgresServer
from instep.destinations.postgres.shape import relations
from instep.destinations.sql.alter import named, now_ms, parked
from instep.destinations.sql.evolve import DAY_MS, check_copy, copy_of, is_made, undrop_report_of
from instep.destinations.sql.merge import columns, q


def _forget_columns(server: PostgresServer, ref: Ref, fence: int, limit: float) -> list[str]:
    with server.writing() as session:
        record = find(session, ref, lock=True)
        if record is None:
            return []
        record.check(fence)
        old = [p for p in record.parked if p.at < limit and not dependants(session, ref, [p.place])]
        for column in old:
            session.run(f"ALTER TABLE {session.name(*record.ref)} DROP COLUMN IF EXISTS {q(column.place)}")
        left = tuple(p for p in record.parked if p not in old)
        put(session, with_types(session, replace(record, parked=left, version=record.version + 1)))
    return [f"{named(record.ref)}.{p.name}" for p in old]


class PostgresRetention(PostgresFacet):
    """What was dropped."""

    def dropped(self, ref: Ref, source_id: str | None) -> bool:
        """Return whether the table of this name and source id was dropped and waits, or is back."""
        with self.server.reading() as session:
            return find(session, ref) is not None or parked(dropped(session, ref), source_id) is not None

    def undrop_report(self, ref: Ref, column: str) -> UndropReport:
        with self.server.reading() as session:
            relation = relations(session, [ref]).get(ref)
            return undrop_report_of(
                ref, find(session, ref), column, [p.name for p in relation.columns] if relation else []
            )

    def purge_expired(self, refs: Iterable[Ref], fence: int) -> list[str]:
        """Deletes the columns of these tables, and all tables, that were dropped too long ago, unless somebody
        made something that needs them since; their names."""
        gone, limit = list[str](), now_ms() - self.server.config.undo_days * DAY_MS
        for ref in refs:
            with self.server.reading() as session:
                record = find(session, ref)
            if record is not None and any(p.at < limit for p in record.parked):
                gone += _forget_columns(self.server, ref, fence, limit)
        with self.server.reading() as session:
            waiting = [one for one in dropped(session) if one.at < limit]
        for one in waiting:
            with self.server.writing() as session:
                if not dependants(session, (one.ref[0], one.place)):
                    session.run(f"DROP TABLE IF EXISTS {session.name(one.ref[0], one.place)}")
                    remove_dropped(session, one)
                    gone.append(named(one.ref))
        return gone


class PostgresClones(PostgresFacet):
    """Copies of tables."""

    def clone_table(self, ref: Ref, place: Ref, commit: Commit) -> int | None:
        """Copies the rows to `place` and returns how many; None, and no copy, for a table without rows."""
        with loading(self.server, ref, commit) as (session, record):
            count = rows(session, record)
            if record.state is None or not count:
                return None
            made = copy_of(record, place)
            if is_made(made, find(session, place)):
                return count
            made = make(session, made, indexed=False)
            names, target = columns([c.name for c in made.table.columns]), session.name(*place)
            session.run(f"INSERT INTO {target} ({names}) SELECT {names} FROM {session.name(*ref)}")
            if made.table.key:
                index(session, target, made.table.key, record.place)
            put(session, made)
        return count

    def purge_clone(self, place: Ref, fence: int) -> None:
        """Deletes a copy; one that is gone is fine. DestinationError for a table that is no copy."""
        with self.server.writing() as session:
            prepare(session)
            record = find(session, place, lock=True)
            if record is None:
                return
            check_copy(record)
            session.run(f"DROP TABLE {session.name(*place)}")
            remove(session, place)
