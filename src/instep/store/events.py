"""What happened, in order, never changed: the log that people read and notices are made from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, insert, select

from instep.errors import InstepError
from instep.events import Event
from instep.store.database import Database
from instep.store.tables import events


@dataclass(frozen=True)
class LoggedEvent:
    """`number` grows with every event and is never used twice."""

    number: int
    connection: str
    at: datetime
    type: str
    data: Mapping[str, Any]

    @property
    def event(self) -> Event:
        """The event as it was logged; InstepError for a type that this version does not know."""
        for kind in _kinds(Event):
            if kind.type == self.type:
                return kind(**self.data)
        raise InstepError(f"event {self.number} has the unknown type {self.type}", hint="update instep")


class Events:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, *happened: Event) -> None:
        """Logs events in the order given."""
        if not happened:
            return
        now = self._db.now()
        rows = [{"connection": e.connection, "at": now, "type": e.type, "data": e.data()} for e in happened]
        with self._db.write() as transaction:
            transaction.execute(insert(events), rows)

    def after(
        self,
        number: int = 0,
        *,
        connection: str | None = None,
        types: Sequence[str] = (),
        limit: int = 1000,
        connections: Collection[str] | None = None,
    ) -> list[LoggedEvent]:
        """Events with a higher number, oldest first; of one connection, of several, or of all."""
        where = [events.c.number > number, *_of(connection, connections)]
        return self._find(where, types, limit, newest=False)

    def latest(
        self,
        *,
        connection: str | None = None,
        types: Sequence[str] = (),
        limit: int = 100,
        connections: Collection[str] | None = None,
        before: int | None = None,
    ) -> list[LoggedEvent]:
        """The last events, newest first; `before`: with a lower number."""
        where = _of(connection, connections)
        if before is not None:
            where.append(events.c.number < before)
        return self._find(where, types, limit, newest=True)

    def last_number(self) -> int:
        """The number of the last event, 0 before the first."""
        with self._db.read() as transaction:
            return transaction.execute(select(func.max(events.c.number))).scalar() or 0

    def _find(
        self, where: list[ColumnElement[bool]], types: Sequence[str], limit: int, newest: bool
    ) -> list[LoggedEvent]:
        query = select(events).where(*where).limit(limit)
        if types:
            query = query.where(events.c.type.in_(types))
        query = query.order_by(events.c.number.desc() if newest else events.c.number)
        with self._db.read() as transaction:
            return [LoggedEvent(**row) for row in transaction.execute(query).mappings()]


def _of(connection: str | None, connections: Collection[str] | None) -> list[ColumnElement[bool]]:
    wanted = {connection} if connection is not None else connections
    return [] if wanted is None else [events.c.connection.in_(sorted(wanted))]


def _kinds(base: type[Event]) -> Iterator[type[Event]]:
    yield base
    for kind in base.__subclasses__():
        yield from _kinds(kind)
