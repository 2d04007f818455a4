"""The outbox of notifications: written in the transaction of their events, grouped into deliveries, retried.

A delivery is sent at least once: whoever claims it has a lease, and one whose process died is claimed again under
the same id, by which a receiver knows it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from instep.errors import Conflict, InstepError
from instep.events import Event
from instep.store.engine.database import Database
from instep.store.history.recorded_event import LoggedEvent
from instep.store.history.totals import add
from instep.store.tables.catalogs import events
from instep.store.tables.queue import closed_channels, deliveries, delivery_attempts, jobs, outbox

APART = timedelta(seconds=60)
"""Between two deliveries of one batch to one channel that are not urgent."""
LEASE = timedelta(seconds=120)


@dataclass(frozen=True)
class Notice:
    """An event that a channel is to be told of, at `due` or later. Notices of one `batch` may go together: the
    connection's name, or "" for what waits for a channel's next digest."""

    channel: str
    batch: str
    notice: str
    severity: str
    urgent: bool
    due: datetime


Routing = Callable[[Event, datetime], Iterable[Notice]]
"""The channels for an event at a time."""


@dataclass(frozen=True)
class Delivery:
    """A notification sent to one channel."""

    number: int
    id: str
    """The same for every attempt."""
    channel: str
    batch: str
    urgent: bool
    notices: int
    status: str
    """State: `waiting`, `sent` or `dead`."""
    attempt: int
    due: datetime
    lease_until: datetime | None
    created: datetime
    ended: datetime | None
    error: str
    spent: int = 0
    """Number of attempts before somebody retried the delivery."""


@dataclass(frozen=True)
class Attempt:
    """One attempt of a delivery."""

    delivery: int
    attempt: int
    at: datetime
    seconds: float
    code: int
    """The receiver's status code (HTTP or SMTP), 0 if it did not answer."""
    error: str


@dataclass(frozen=True)
class NotifiedEvent:
    """An event with what it is to its channel."""

    event: LoggedEvent
    notice: str
    severity: str


class Outbox:
    def __init__(self, database: Database) -> None:
        self._db = database
        self.routing: Routing | None = None
        self.written = False

    def add(self, transaction: Connection, happened: Sequence[tuple[int, Event]], at: datetime) -> None:
        """Add deliveries, in the transaction that logs the events, given as (number, event)."""
        if self.routing is None:
            return
        rows = [
            {**vars(notice), "event": number, "connection": event.connection, "at": at}
            for number, event in happened
            for notice in self.routing(event, at)
        ]
        if rows:
            transaction.execute(insert(outbox), rows)
            self.written = True

    def due(self) -> bool:
        """Return whether there is anything to gather or to send now; cheap to ask again and again."""
        o, d = outbox.c, deliveries.c
        with self._db.read() as transaction:
            now = self._db.now()
            gathered = select(o.number).where(o.delivery.is_(None), o.due <= now)
            free = (d.status == "waiting", d.due <= now, (d.lease_until.is_(None)) | (d.lease_until <= now))
            waits = select(d.number).where(*free, d.channel.not_in(select(closed_channels.c.channel)))
            return any(transaction.execute(query.limit(1)).first() for query in (gathered, waits))

    def gather(self, longest_wait: timedelta = timedelta()) -> int:
        """Make deliveries of the notices that are due, and answers how many. Those of one batch that are not urgent
        go together, at most one delivery in 60 seconds; what comes meanwhile is in the next one, or goes with what is
        urgent. That waits, up to `longest_wait`, while a job of its connection runs: the end of a run and what becomes
        of its job are one piece of news."""
        with self._db.write(common=True) as transaction:
            now = self._db.now()
            gathered = {(row.channel, row.batch) for row in transaction.execute(_urgent_waiting(now, longest_wait))}
            waiting = len(gathered)
            for channel, batch, urgent in transaction.execute(_batches(now)).all():
                if (channel, batch) not in gathered and (urgent or not _just_sent(transaction, channel, batch, now)):
                    _gather(transaction, channel, batch, urgent, now)
                    gathered.add((channel, batch))
            return len(gathered) - waiting

    def claim(self) -> Delivery | None:
        """Return the next delivery that is due, for this caller alone while its lease lasts; None if there is none."""
        d = deliveries.c
        with self._db.write(common=True) as transaction:
            now = self._db.now()
            free = (d.status == "waiting", d.due <= now, (d.lease_until.is_(None)) | (d.lease_until <= now))
            query = select(deliveries).where(*free, d.channel.not_in(select(closed_channels.c.channel)))
            row = transaction.execute(query.order_by(d.urgent.desc(), d.due, d.number).limit(1)).first()
            if row is None:
                return None
            lease = {"attempt": row.attempt + 1, "lease_until": now + LEASE}
            transaction.execute(update(deliveries).where(d.number == row.number).values(**lease))
            return Delivery(**{**row._mapping, **lease})

    def events_of(self, delivery: Delivery) -> list[NotifiedEvent]:
        """Return the events of a delivery, in the order in which they happened."""
        query = select(events, outbox.c.notice, outbox.c.severity).join(events, events.c.number == outbox.c.event)
        query = query.where(outbox.c.delivery == delivery.number).order_by(events.c.number)
        with self._db.read() as transaction:
            rows = transaction.execute(query).all()
        return [
            NotifiedEvent(LoggedEvent(row.number, row.connection, row.at, row.type, row.data), row.notice, row.severity)
            for row in rows
        ]

    def sent(self, delivery: Delivery, *, seconds: float, code: int = 0) -> bool:
        """Record that a delivery was sent; False if another process has taken it over meanwhile."""
        return self._end(delivery, seconds, code, "", status="sent", ended=self._db.now())

    def failed(
        self, delivery: Delivery, error: str, *, seconds: float, code: int = 0, again: datetime | None = None
    ) -> bool:
        """Record a failed delivery, which is tried `again` at that time; without one it is dead."""
        if again is not None:
            return self._end(delivery, seconds, code, error, due=again)
        return self._end(delivery, seconds, code, error, status="dead", ended=self._db.now())

    def _end(self, delivery: Delivery, seconds: float, code: int, error: str, **values: Any) -> bool:
        """Record the result of an attempt, also of one that came too late."""
        d = deliveries.c
        where = (d.number == delivery.number, d.attempt == delivery.attempt, d.status == "waiting")
        with self._db.write(common=True) as transaction:
            transaction.execute(
                insert(delivery_attempts).values(
                    delivery=delivery.number,
                    attempt=delivery.attempt,
                    at=self._db.now(),
                    seconds=seconds,
                    code=code,
                    error=error,
                )
            )
            statement = update(deliveries).where(*where).values(lease_until=None, error=error, **values)
            return transaction.execute(statement).rowcount == 1

    def retry(self, number: int) -> Delivery:
        """Retry a dead delivery now, as often as a new one; raises Conflict if it is not dead, InstepError if there
        is none."""
        with self._db.write(common=True) as transaction:
            delivery = self._one(transaction, number)
            if delivery.status != "dead":
                raise Conflict(f"delivery {number} is {delivery.status}, not dead", hint="see `instep notify log`")
            values = {"status": "waiting", "due": self._db.now(), "ended": None, "spent": delivery.attempt}
            transaction.execute(update(deliveries).where(deliveries.c.number == number).values(**values))
            return self._one(transaction, number)

    def _one(self, transaction: Connection, number: int) -> Delivery:
        row = transaction.execute(select(deliveries).where(deliveries.c.number == number)).first()
        if row is None:
            raise InstepError(f"no delivery {number} is known", hint="see `instep notify log`")
        return _delivery(row)

    def close(self, channel: str, why: str) -> None:
        """Close a channel: nothing is sent until it is opened; its notifications are kept."""
        with self._db.write(common=True) as transaction:
            transaction.execute(delete(closed_channels).where(closed_channels.c.channel == channel))
            transaction.execute(insert(closed_channels).values(channel=channel, why=why, at=self._db.now()))

    def open(self, channel: str) -> bool:
        """False if the channel was not closed. What is kept for it is due."""
        with self._db.write(common=True) as transaction:
            closed = delete(closed_channels).where(closed_channels.c.channel == channel)
            is_opened = transaction.execute(closed).rowcount == 1
            self.written = self.written or is_opened
            return is_opened

    def drop(self, channel: str) -> None:
        """Close a channel that was deleted: nothing more is sent to it; what it was sent stays on record."""
        d, over = deliveries.c, {"status": "dead", "error": f"channel {channel} was deleted"}
        with self._db.write() as transaction:
            ended = {**over, "ended": self._db.now(), "lease_until": None}
            where = (d.channel == channel, d.status == "waiting")
            transaction.execute(update(deliveries).where(*where).values(**ended))
            transaction.execute(delete(outbox).where(outbox.c.channel == channel, outbox.c.delivery.is_(None)))
            transaction.execute(delete(closed_channels).where(closed_channels.c.channel == channel))

    def closed(self) -> Mapping[str, str]:
        """Return closed channels, with the reason."""
        query = select(closed_channels.c.channel, closed_channels.c.why)
        with self._db.read() as transaction:
            return {row.channel: row.why for row in transaction.execute(query)}

    def get(self, number: int) -> Delivery:
        """Raise InstepError if there is none."""
        with self._db.read() as transaction:
            return self._one(transaction, number)

    def log(
        self, channel: str | None = None, *, status: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[Delivery]:
        """Return deliveries, newest first; `before`: only those with a lower number."""
        query = select(deliveries).order_by(deliveries.c.number.desc()).limit(limit)
        for column, value in ((deliveries.c.channel, channel), (deliveries.c.status, status)):
            query = query if value is None else query.where(column == value)
        if before is not None:
            query = query.where(deliveries.c.number < before)
        with self._db.read() as transaction:
            return [_delivery(row) for row in transaction.execute(query)]

    def knows(self, channel: str) -> bool:
        """Return whether anything was ever sent over it that is on record still."""
        return bool(self.log(channel, limit=1))

    def attempts(self, number: int) -> list[Attempt]:
        """Return the attempts of a delivery, in order."""
        a = delivery_attempts.c
        query = select(delivery_attempts).where(a.delivery == number).order_by(a.attempt)
        with self._db.read() as transaction:
            return [Attempt(**row._mapping) for row in transaction.execute(query)]

    def forget(self, older: timedelta) -> int:
        """Delete deliveries that ended longer ago, with their attempts and notices; answers how many."""
        d = deliveries.c
        with self._db.write() as transaction:
            old = select(d.number).where(d.ended < self._db.now() - older)
            if transaction.execute(old.limit(1)).first() is None:
                return 0
            gone = ended(transaction, self._db.now() - older)
            add(transaction, {("notifications", labels): count for labels, count in gone.items()})
            transaction.execute(delete(delivery_attempts).where(delivery_attempts.c.delivery.in_(old)))
            transaction.execute(delete(outbox).where(outbox.c.delivery.in_(old)))
            return transaction.execute(delete(deliveries).where(d.ended < self._db.now() - older)).rowcount

    def waiting(self) -> Mapping[str, int]:
        """Return how many notices are not delivered yet, by channel; those of dead deliveries are not among them."""
        going = select(deliveries.c.number).where(deliveries.c.status == "waiting")
        query = select(outbox.c.channel, func.count()).group_by(outbox.c.channel)
        query = query.where(outbox.c.delivery.is_(None) | outbox.c.delivery.in_(going))
        with self._db.read() as transaction:
            return {row[0]: row[1] for row in transaction.execute(query)}


def ended(transaction: Connection, before: datetime | None = None) -> dict[tuple[tuple[str, str], ...], int]:
    """Count deliveries that have ended (before), by the labels of their metric."""
    d = deliveries.c
    query = (
        select(d.channel, d.status, func.count()).where(d.status.in_(("sent", "dead"))).group_by(d.channel, d.status)
    )
    rows = transaction.execute(query if before is None else query.where(d.ended < before)).all()
    return {(("channel", channel), ("result", status)): count for channel, status, count in rows}


def _batches(now: datetime) -> Any:
    """Select (channel, batch, urgent) with notices that are due."""
    o = outbox.c
    query = select(o.channel, o.batch, o.urgent).distinct().where(o.delivery.is_(None), o.due <= now)
    return query.order_by(o.urgent.desc(), o.channel, o.batch)


def _urgent_waiting(now: datetime, longest_wait: timedelta) -> Any:
    """Select (channel, batch) whose urgent notices wait for what belongs to them."""
    o = outbox.c
    running = select(jobs.c.id).where(jobs.c.connection == o.connection, jobs.c.status == "running")
    query = select(o.channel, o.batch).where(o.delivery.is_(None), o.urgent, o.due <= now, running.exists())
    return query.group_by(o.channel, o.batch).having(func.min(o.at) > now - longest_wait)


def _just_sent(transaction: Connection, channel: str, batch: str, now: datetime) -> bool:
    d = deliveries.c
    where = (d.channel == channel, d.batch == batch, d.urgent.is_(False), d.created > now - APART)
    return transaction.execute(select(d.number).where(*where).limit(1)).first() is not None


def _gather(transaction: Connection, channel: str, batch: str, urgent: bool, now: datetime) -> None:
    values = {
        "id": f"m-{secrets.token_hex(12)}",
        "channel": channel,
        "batch": batch,
        "urgent": urgent,
        "notices": 0,
        "status": "waiting",
        "due": now,
        "created": now,
    }
    number = transaction.execute(insert(deliveries).values(**values).returning(deliveries.c.number)).scalar_one()
    o = outbox.c
    where = [o.delivery.is_(None), o.due <= now, o.channel == channel, o.batch == batch]
    if not urgent:
        where.append(o.urgent.is_(False))
    count = transaction.execute(update(outbox).where(*where).values(delivery=number)).rowcount
    transaction.execute(update(deliveries).where(deliveries.c.number == number).values(notices=count))


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(**row._mapping)
