# ruff: noqa: S608 - names are quoted
"""Storage beside the tables: dropped columns and tables until their time is over, copies, staged files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from instep.destinations.base import Commit, Ref, UndropReport
from instep.destinations.connection_test import has_space
from instep.destinations.sql.database import SqlDatabase, SqlFacet
from instep.destinations.sql.evolve import latest
from instep.destinations.sql.loads import count_rows
from instep.destinations.sql.merge import columns, q
from instep.destinations.sql.record_tables import (
    drop_for_good,
    dropped,
    find,
    last_dropped,
    named,
    prepare,
    put,
    remove,
)
from instep.destinations.sql.tables import make, now_ms, with_types
from instep.errors import Conflict, DestinationError
from instep.model import Check
from instep.schema.maintenance import DAY_MS
from instep.stage.files.place import StorageFolder


class SqlClones(SqlFacet):
    """Copies of tables."""

    def clone_table(self, ref: Ref, place: Ref, commit: Commit) -> int | None:
        """Copy the rows to `place` and return how many; None, and no clone, for a table without rows."""
        with self.database.loading(ref, commit) as (session, record):
            count = count_rows(session, record)
            if record.state is None or not count:
                return None
            origin = json.dumps([record.place, record.version])
            if (clone := find(session, place)) is not None:
                if clone.copy != origin:
                    raise Conflict(f"table {named(place)} is there already", hint="rename or purge that one first")
                return count
            table = replace(record.table, schema=place[0], name=place[1])
            copied = replace(record, table=table, place=f"copy of {record.place}", parked=(), copy=origin)
            copied = make(session, copied)
            names = columns(copied.names)
            session.run(f"INSERT INTO {session.name(*place)} ({names}) SELECT {names} FROM {session.name(*ref)}")
            session.index_key(replace(copied, place=record.place), copied.table.key)
            put(session, copied)
        return count

    def purge_clone(self, place: Ref, fence: int) -> None:
        """Delete a clone; do nothing if it is gone. Raises DestinationError for a table that is no clone."""
        with self.database.writing() as session:
            prepare(session)
            record = find(session, place, lock=True)
            if record is None:
                return
            if not record.copy:
                why = f"table {named(place)} is not a copy made by instep"
                raise DestinationError(why, hint="it is left alone: look at it first")
            session.run(f"DROP TABLE {session.name(*place)}")
            remove(session, place)


class SqlLifecycle(SqlFacet):
    """See `destinations.facets.LifecycleFacet`."""

    savepoints = preview = None

    def __init__(self, database: SqlDatabase, test: Callable[[], list[Check]]) -> None:
        super().__init__(database)
        self.test = test
        self.clones = SqlClones(database)

    @property
    def session(self) -> Callable[[], AbstractContextManager[None]] | None:
        """None: the destination is always open."""
        return None

    @property
    def vacuum(self) -> Callable[[bool], tuple[int, int]] | None:
        """None: the database reuses the space of deleted rows by itself."""
        return None

    def spark_catalog(self) -> Mapping[str, str]:
        """Return nothing: Spark only writes the staged files."""
        return {}

    def spark_table(self, ref: Ref) -> None:
        """Return nothing: Spark does not read it."""

    def check_writable(self) -> None:
        """No-op: it is the server that writes."""
        return

    def has_space(self) -> bool:
        """Return whether staged files can be written to this machine."""
        staged = StorageFolder(self.database.area.uri).local
        return staged is None or has_space(staged)

    def deferred_create(self) -> AbstractContextManager[None]:
        """No-op: a table exists once it is created."""
        return nullcontext()

    def shared_storage(self) -> StorageFolder:
        """Return a folder for files that belong to no table."""
        area = self.database.area
        return StorageFolder(area.folder("_instep_runs"), area.io)

    def remove_uncommitted_files(self, ref: Ref, runs: Mapping[str, int]) -> None:
        """Delete what runs that are over staged for a claimed table and never committed."""
        with self.database.reading() as session:
            record = find(session, ref)
        if record is not None:
            self.database.remove_staged(record, runs.values())
            self.database.area.remove_uncommitted_files(record.place, runs, record.runs)

    def dropped(self, ref: Ref, source_id: str | None) -> bool:
        """Return whether the table of this name and source id was dropped and waits, or is back."""
        with self.database.reading() as session:
            return find(session, ref) is not None or last_dropped(dropped(session, ref), source_id) is not None

    def undrop_report(self, ref: Ref, column: str) -> UndropReport:
        """Report what an undrop would bring back. A dropped column stays in the table itself: only rows loaded since
        have no value in it."""
        with self.database.reading() as session:
            record = find(session, ref)
            if record is None:
                return UndropReport(f"table {named(ref)} is not there")
            if (old := latest(record.parked, column)) is not None:
                return UndropReport(written=old.written)
            relation = session.relations([ref]).get(ref)
        back = column in record.table.by_name and any(p.name == column for p in (relation.columns if relation else ()))
        return UndropReport() if back else UndropReport(f"column {column!r} is no longer retained")

    def purge_expired(self, refs: Iterable[Ref], fence: int) -> list[str]:
        """Delete columns of these tables, and all tables, that were dropped too long ago, unless something new needs
        them; return their names."""
        limit = now_ms() - self.database.config.undo_days * DAY_MS
        with self.database.reading() as session:
            records = [record for ref in refs if (record := find(session, ref)) is not None]
            waiting = [table for table in dropped(session) if table.at < limit]
        old = [record.ref for record in records if any(p.at < limit for p in record.parked)]
        gone = [name for ref in old for name in self._purge_columns(ref, fence, limit)]
        for table in waiting:
            with self.database.writing() as session:
                if not session.dependants((table.ref[0], table.place)):
                    drop_for_good(session, table)
                    gone.append(named(table.ref))
        return gone

    def _purge_columns(self, ref: Ref, fence: int, limit: float) -> list[str]:
        with self.database.writing() as session:
            record = find(session, ref, lock=True)
            if record is None:
                return []
            record.check(fence)
            old = [p for p in record.parked if p.at < limit and not session.dependants(ref, [p.place])]
            for column in old:
                session.run(f"ALTER TABLE {session.name(*record.ref)} DROP COLUMN IF EXISTS {q(column.place)}")
            left = tuple(p for p in record.parked if p not in old)
            put(session, with_types(session, replace(record, parked=left, version=record.version + 1)))
        return [f"{named(record.ref)}.{p.name}" for p in old]
