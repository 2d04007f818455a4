"""Connection tests: what the last test of a connection or destination, or a run since then, has found."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete, insert, select, update

from instep.events import ConnectionTested
from instep.store.engine.database import Database
from instep.store.history.events import Events
from instep.store.tables.queue import setups

UNTESTED = "It has not been tested yet."
"""The problem of a destination about which nothing more is known."""


class Setups:
    def __init__(self, database: Database, events: Events) -> None:
        self._db, self._events = database, events

    def broken(self, connections: Collection[str]) -> dict[str, str]:
        """Return those of these connections whose set-up does not work, with the reason."""
        c = setups.c
        query = select(c.connection, c.error).where(c.connection.in_(connections), c.error != "")
        with self._db.read() as transaction:
            return {row.connection: row.error for row in transaction.execute(query)}

    def tested(self, connection: str, error: str) -> None:
        """Record the result of a test, "" if all is well."""
        with self._db.write():
            self._set(connection, error)
            self._events.add(ConnectionTested(connection, error))

    def record_result(self, connection: str, error: str) -> None:
        """Record the result of a run, with an event only where it is news."""
        with self._db.write():
            if bool(self.broken([connection])) != bool(error):
                self.tested(connection, error)

    def destinations(self, names: Collection[str]) -> dict[str, str]:
        """Return those of these destinations that do not work, or were not tested, with the reason."""
        broken = self.broken([_destination(name) for name in names])
        return {name: broken[_destination(name)] for name in names if _destination(name) in broken}

    def reached(self, destination: str, error: str = "") -> None:
        """Record whether a destination could be reached, from a test or a run."""
        with self._db.write():
            if self.destinations([destination]).get(destination, "") != error:
                self._set(_destination(destination), error)

    def forget(self, destination: str) -> None:
        with self._db.write() as transaction:
            transaction.execute(delete(setups).where(setups.c.connection == _destination(destination)))

    def _set(self, connection: str, error: str) -> None:
        c, values = setups.c, {"error": error, "at": self._db.now()}
        with self._db.write() as transaction:
            if transaction.execute(update(setups).where(c.connection == connection).values(**values)).rowcount == 0:
                transaction.execute(insert(setups).values(connection=connection, **values))


def _destination(name: str) -> str:
    """Return a destination's name among connections, whose names have no slash."""
    return f"destination/{name}"
