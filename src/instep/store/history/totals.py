"""Totals since the store was created; deleting old events does not reduce them.

The log of events is folded into totals by whoever asks for them: nothing is counted while rows move, and each event
counts once, because the number up to which events were folded is written with the totals.

How far the log of events was passed on to somebody, and whose turn it is to do so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, insert, select, update

from instep.store.engine.database import Database
from instep.store.history.recorded_event import LoggedEvent
from instep.store.tables.catalogs import events
from instep.store.tables.queue import totals

_FOLDED = ("events_folded", "{}")
BATCH = 5000

Total = tuple[str, tuple[tuple[str, str], ...]]
"""A name with its labels, sorted."""


def total(name: str, **labels: str) -> Total:
    return name, tuple(sorted(labels.items()))


@dataclass(frozen=True)
class Counted:
    """Amounts that events add to the totals."""

    more: Mapping[Total, float] = field(default_factory=dict)
    """Added to what there is; of `latest` the higher value stays."""
    latest: Mapping[Total, float] = field(default_factory=dict)


class Totals:
    def __init__(self, database: Database) -> None:
        self._db = database

    def all(self) -> dict[Total, float]:
        """Return the totals so far, without events that were not folded yet."""
        with self._db.read() as transaction:
            rows = transaction.execute(select(totals).where(totals.c.name.not_in((_FOLDED[0], *NO_COUNTERS)))).all()
        return {(row.name, tuple(sorted(json.loads(row.labels).items()))): row.value for row in rows}

    def fold(self, count: Callable[[Sequence[LoggedEvent]], Counted], batch: int = BATCH) -> int:
        """Count the events that came since the last time; answers how many there were."""
        done = 0
        while new := self._fold(count, batch):
            done += new
            if new < batch:
                break
        return done

    def _fold(self, count: Callable[[Sequence[LoggedEvent]], Counted], batch: int) -> int:
        with self._db.read() as transaction:
            if not _new(transaction, 1):
                return 0
        with self._db.write() as transaction:
            events = _new(transaction, batch)
            if events:
                counted = count(events)
                add(transaction, counted.more)
                _put(transaction, {_encoded(of): value for of, value in counted.latest.items()}, max)
                _put(transaction, {_FOLDED: float(events[-1].number)}, max)
            return len(events)


def folded(transaction: Connection) -> int:
    """Return the number of the last event that is counted."""
    where = (totals.c.name == _FOLDED[0], totals.c.labels == _FOLDED[1])
    return int(transaction.execute(select(totals.c.value).where(*where)).scalar() or 0)


def add(transaction: Connection, more: Mapping[Total, float]) -> None:
    """Add to the totals, in the transaction of the counted event."""
    _put(transaction, {_encoded(of): value for of, value in more.items()}, lambda old, new: old + new)


def _new(transaction: Connection, limit: int) -> list[LoggedEvent]:
    query = select(events).where(events.c.number > folded(transaction)).order_by(events.c.number).limit(limit)
    return [LoggedEvent(**row) for row in transaction.execute(query).mappings()]


def _encoded(of: Total) -> tuple[str, str]:
    return of[0], json.dumps(dict(of[1]), sort_keys=True, ensure_ascii=False)


def _put(
    transaction: Connection, values: Mapping[tuple[str, str], float], merge: Callable[[float, float], float]
) -> None:
    c = totals.c
    for (name, labels), value in values.items():
        where = (c.name == name, c.labels == labels)
        current = transaction.execute(select(c.value).where(*where)).scalar()
        if current is None:
            transaction.execute(insert(totals).values(name=name, labels=labels, value=value))
        else:
            transaction.execute(update(totals).where(*where).values(value=merge(current, value)))


POSITION, TURN = "position", "turn"
NO_COUNTERS = (POSITION, TURN)
"""Names of rows that are no counters."""


class Positions:
    """Positions of readers of the event log, two rows each.

    The number of the last event, and the time until which a reader has the turn (seconds since 1970).
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    def at(self, of: str) -> int:
        """Return the number of the last event that was passed on, 0 for none yet."""
        with self._db.read() as transaction:
            return int(_values(transaction, of).get(POSITION, 0))

    def claim(self, of: str, seconds: float) -> int | None:
        """Return the position as `at` does and take the turn for so long; None while somebody else has it."""
        with self._db.write() as transaction:
            values, now = _values(transaction, of), self._db.now().timestamp()
            if values.get(TURN, 0.0) > now:
                return None
            _put_position(transaction, TURN, of, now + seconds)
            return int(values.get(POSITION, 0))

    def advance(self, of: str, number: int) -> None:
        """Record that everything up to this event was passed on."""
        with self._db.write() as transaction:
            _put_position(transaction, POSITION, of, float(number))

    def leave(self, of: str, wait: float = 0.0) -> None:
        """End the turn; nobody takes the next one for `wait` seconds."""
        with self._db.write() as transaction:
            _put_position(transaction, TURN, of, self._db.now().timestamp() + wait)


def _labels(of: str) -> str:
    return json.dumps({"of": of})


def _values(transaction: Connection, of: str) -> Mapping[str, float]:
    query = select(totals.c.name, totals.c.value).where(totals.c.name.in_(NO_COUNTERS), totals.c.labels == _labels(of))
    return {row.name: row.value for row in transaction.execute(query)}


def _put_position(transaction: Connection, name: str, of: str, value: float) -> None:
    where = (totals.c.name == name, totals.c.labels == _labels(of))
    if not transaction.execute(update(totals).where(*where).values(value=value)).rowcount:
        transaction.execute(insert(totals).values(name=name, labels=_labels(of), value=value))
