"""How scheduled detectors stand: whether one has switched itself off, and when an error set it off last."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from sqlalchemy import insert, select, update

from instep.model import DetectorState
from instep.store.engine.database import Database
from instep.store.tables.queue import detectors


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
