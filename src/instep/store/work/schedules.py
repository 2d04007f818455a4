"""What comes again and when: one indexed query finds what is due among thousands."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, insert, select, update

from instep.model import JobKind, Scheduled
from instep.store.engine.database import Database
from instep.store.tables.queue import schedules


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
        """What should have come by then, the longest overdue first."""
        query = select(schedules).where(schedules.c.next_due <= now)
        return self._rows(query.order_by(schedules.c.next_due).limit(limit))

    def put(self, *wanted: Scheduled) -> None:
        """Add schedules, or replace those of the same connection and kind."""
        if not wanted:
            return
        with self._db.write() as transaction:
            for one in wanted:
                transaction.execute(schedules.delete().where(*_same(one.connection, one.kind)))
            transaction.execute(insert(schedules), [vars(one) for one in wanted])

    def drop(self, which: Iterable[tuple[str, JobKind]]) -> None:
        """They come no more; jobs that wait or run are left alone."""
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
