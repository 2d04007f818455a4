"""Due work and its times, who looked at a source last, and how scheduled detectors are doing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, insert, select, update

from instep.model import DetectorState, JobKind, Scheduled
from instep.store.engine.database import Database
from instep.store.tables.queue import detectors, looks, schedules


class Schedules:
    def __init__(self, database: Database) -> None:
        self._db = database

    def all(self, connection: str | None = None) -> list[Scheduled]:
        """Return all schedules by connection and kind."""
        query = select(schedules).order_by(schedules.c.connection, schedules.c.kind)
        if connection is not None:
            query = query.where(schedules.c.connection == connection)
        return self._rows(query)

    def due(self, now: datetime, limit: int = 500) -> list[Scheduled]:
        """Return the schedules that were due by then, the longest overdue first."""
        query = select(schedules).where(schedules.c.next_due <= now)
        return self._rows(query.order_by(schedules.c.next_due).limit(limit))

    def put(self, *scheduled: Scheduled) -> None:
        """Add schedules, or replace those of the same connection and kind."""
        if not scheduled:
            return
        with self._db.write() as transaction:
            for schedule in scheduled:
                transaction.execute(schedules.delete().where(*_same(schedule.connection, schedule.kind)))
            transaction.execute(insert(schedules), [vars(schedule) for schedule in scheduled])

    def drop(self, which: Iterable[tuple[str, JobKind]]) -> None:
        """Drop schedules; jobs that wait or run are left alone."""
        with self._db.write() as transaction:
            for connection, kind in which:
                transaction.execute(schedules.delete().where(*_same(connection, kind)))

    def advance(self, fired: Scheduled, next_due: datetime | None) -> bool:
        """Advance a schedule from the due time to the next one; False if another worker was first or the schedule is
        gone."""
        where = (*_same(fired.connection, fired.kind), schedules.c.next_due == fired.next_due)
        with self._db.write() as transaction:
            values = {"next_due": next_due, "last_due": fired.next_due}
            return transaction.execute(update(schedules).where(*where).values(**values)).rowcount == 1

    def _rows(self, query: Any) -> list[Scheduled]:
        with self._db.read() as transaction:
            return [Scheduled(**row) for row in transaction.execute(query).mappings()]


def _same(connection: str, kind: JobKind) -> tuple[ColumnElement[bool], ...]:
    return schedules.c.connection == connection, schedules.c.kind == kind


@dataclass(frozen=True)
class SourceInspection:
    """A look at `source`, by the digest of its `settings`: it began at `begun`, and `connection` keeps what was seen,
    under `fingerprint`."""

    source: str
    settings: str
    connection: str
    fingerprint: str
    begun: datetime


class SourceInspections:
    def __init__(self, database: Database) -> None:
        self._db = database

    def now(self) -> datetime:
        """Return the store's clock, for the begin of a look."""
        return self._db.now()

    def last(self, source: str, settings: str) -> SourceInspection | None:
        """Return the last look at the source as it is set now."""
        query = select(looks).where(looks.c.source == source, looks.c.settings == settings)
        with self._db.read() as transaction:
            row = transaction.execute(query).mappings().first()
            return SourceInspection(**row) if row else None

    def note(self, look: SourceInspection) -> None:
        """Record a detection in place of the source's last one, unless that began later."""
        c = looks.c
        with self._db.write() as transaction:
            begun = transaction.execute(select(c.begun).where(c.source == look.source)).scalar()
            if begun is not None and begun > look.begun:
                return
            transaction.execute(delete(looks).where(c.source == look.source))
            transaction.execute(insert(looks).values(**vars(look)))


class Detectors:
    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self, connection: str) -> DetectorState:
        with self._db.read() as transaction:
            query = select(detectors).where(detectors.c.connection == connection)
            row = transaction.execute(query).mappings().first()
            return DetectorState(**row) if row else DetectorState(connection)

    def disabled(self, connections: Collection[str]) -> dict[str, str]:
        """Return those of these connections whose detector has switched itself off, with the reason."""
        c = detectors.c
        query = select(c.connection, c.disabled).where(c.connection.in_(connections), c.disabled != "")
        with self._db.read() as transaction:
            return {row.connection: row.disabled for row in transaction.execute(query)}

    def disable(self, connection: str, why: str) -> bool:
        """False if it was off by itself already: the first reason stays."""
        with self._db.write():
            if self.get(connection).disabled:
                return False
            self._set(connection, disabled=why, disabled_at=self._db.now())
            return True

    def enable(self, connection: str) -> bool:
        """False if it had not switched itself off."""
        with self._db.write():
            if not self.get(connection).disabled:
                return False
            self._set(connection, disabled="", disabled_at=None)
            return True

    def may_trigger(self, connection: str, every: timedelta) -> bool:
        """Return whether an error may set off a detection now; if so, no other may for `every`."""
        with self._db.write():
            last, now = self.get(connection).error_at, self._db.now()
            if last is not None and timedelta() <= now - last < every:
                return False
            self._set(connection, error_at=now)
            return True

    def _set(self, connection: str, **values: Any) -> None:
        with self._db.write() as transaction:
            where = detectors.c.connection == connection
            if transaction.execute(update(detectors).where(where).values(**values)).rowcount == 0:
                transaction.execute(insert(detectors).values(connection=connection, **values))
