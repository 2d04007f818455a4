"""How far the log of events was passed on to somebody, and whose turn it is to do so."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlalchemy import Connection, insert, select, update

from instep.store.engine.database import Database
from instep.store.tables.notices import totals

POSITION, TURN = "position", "turn"
NO_COUNTERS = (POSITION, TURN)
"""Names of rows that are no counters."""


class Positions:
    """Each is two rows beside the totals: the number of the last event, and the time until which somebody has the
    turn (seconds since 1970)."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def at(self, of: str) -> int:
        """Return the number of the last event that was passed on, 0 for none yet."""
        with self._db.read() as transaction:
            return int(_values(transaction, of).get(POSITION, 0))

    def take(self, of: str, seconds: float) -> int | None:
        """Return the position as `at` does and take the turn for so long; None while somebody else has it."""
        with self._db.write() as transaction:
            found, now = _values(transaction, of), self._db.now().timestamp()
            if found.get(TURN, 0.0) > now:
                return None
            _put(transaction, TURN, of, now + seconds)
            return int(found.get(POSITION, 0))

    def keep(self, of: str, number: int) -> None:
        """Up to this event all was passed on."""
        with self._db.write() as transaction:
            _put(transaction, POSITION, of, float(number))

    def leave(self, of: str, wait: float = 0.0) -> None:
        """The turn is over; nobody takes the next one for `wait` seconds."""
        with self._db.write() as transaction:
            _put(transaction, TURN, of, self._db.now().timestamp() + wait)


def _labels(of: str) -> str:
    return json.dumps({"of": of})


def _values(transaction: Connection, of: str) -> Mapping[str, float]:
    query = select(totals.c.name, totals.c.value).where(totals.c.name.in_(NO_COUNTERS), totals.c.labels == _labels(of))
    return {row.name: row.value for row in transaction.execute(query)}


def _put(transaction: Connection, name: str, of: str, value: float) -> None:
    where = (totals.c.name == name, totals.c.labels == _labels(of))
    if not transaction.execute(update(totals).where(*where).values(value=value)).rowcount:
        transaction.execute(insert(totals).values(name=name, labels=_labels(of), value=value))
