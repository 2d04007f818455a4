"""Log of events, in order, never changed: people read it, and notifications are made from it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, func, insert, select, text

from instep.events import Event
from instep.redaction import blot
from instep.store.engine.database import Database, by_connection
from instep.store.history.outbox import Outbox
from instep.store.history.recorded_event import LoggedEvent
from instep.store.tables.catalogs import MAINTAINED, events

__all__ = ["Events", "LoggedEvent"]
_log = logging.getLogger("instep.events")
_log.addHandler(logging.NullHandler())  # where no log is kept, Python would print warnings on the terminal
_IDS = ("connection", "run", "change", "job", "table", "rollout")
_TEXTS = frozenset({"error", "reason"})
_BAD = frozenset({"run.ended", "detection.finished", "table.failed", "job.dead", "detector.disabled"})
"""Events that are warnings in the logs if they have an error or a reason."""


class Events:
    def __init__(self, database: Database, outbox: Outbox) -> None:
        self._db = database
        self._outbox = outbox

    def add(self, *happened: Event) -> None:
        """Log events in the order given, and put the notices of them into the outbox, in one transaction."""
        if not happened:
            return
        now = self._db.now()
        rows = [{"connection": e.connection, "at": now, "type": e.type, "data": _data(e)} for e in happened]
        with self._db.write(common=True) as transaction:  # so that they are committed in the order of their numbers
            statement = insert(events).returning(events.c.number, sort_by_parameter_order=True)
            numbers = transaction.execute(statement, rows).scalars().all()
            self._outbox.add(transaction, list(zip(numbers, happened, strict=True)), now)
            self._db.after_commit(partial(_tell, happened))

    def after(
        self,
        number: int = 0,
        *,
        connection: str | None = None,
        types: Sequence[str] = (),
        limit: int = 1000,
        connections: Collection[str] | None = None,
    ) -> list[LoggedEvent]:
        """Return events with a higher number, oldest first; of one connection, of several, or of all."""
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
        since: datetime | None = None,
        until: datetime | None = None,
        data: Mapping[str, str] | None = None,
    ) -> list[LoggedEvent]:
        """Return the last events, newest first; `before`: with a lower number; `data`: with these values in it."""
        where = _of(connection, connections)
        if before is not None:
            where.append(events.c.number < before)
        if since is not None:
            where.append(events.c.at >= since)
        if until is not None:
            where.append(events.c.at < until)
        where += [events.c.data[name].as_string() == value for name, value in (data or {}).items()]
        return self._find(where, types, limit, newest=True)

    def maintained(self, names: Sequence[str]) -> dict[str, list[LoggedEvent]]:
        """Return the last maintenance of each table of these connections, oldest first. By an index of its own."""
        c = events.c
        table = c.data["table"].as_string()
        where = (text(MAINTAINED), c.connection.in_(names))
        last = select(func.max(c.number)).where(*where).group_by(c.connection, table)
        query = select(events).where(c.number.in_(last)).order_by(c.number)
        with self._db.read() as transaction:
            rows = transaction.execute(query).mappings()
            return by_connection(names, ((row["connection"], LoggedEvent(**row)) for row in rows))

    def last_number(self) -> int:
        """Return the number of the last event, 0 before the first."""
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


def _data(event: Event) -> dict[str, Any]:
    """Return the fields of an event; errors and reasons without the secrets that this process knows."""
    data = event.data()
    return {name: blot(value) if name in _TEXTS and isinstance(value, str) else value for name, value in data.items()}


def _tell(happened: Sequence[Event]) -> None:
    """Log each event as a line, with its ids as fields."""
    for event in happened:
        data = event.data()
        bad = event.type in _BAD and (data.get("error") or data.get("reason"))
        ids = {name: data.pop(name) for name in _IDS if data.get(name)}
        _log.log(logging.WARNING if bad else logging.INFO, event.type, extra={**ids, "event": data})


def _of(connection: str | None, connections: Collection[str] | None) -> list[ColumnElement[bool]]:
    names = {connection} if connection is not None else connections
    return [] if names is None else [events.c.connection.in_(sorted(names))]
