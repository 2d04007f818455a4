"""The store's own random id: projects of one name that have stores of their own are told apart by it."""

from __future__ import annotations

import secrets

from sqlalchemy import insert, select

from instep.store.engine.database import Database
from instep.store.tables.queue import installation

_ID = select(installation.c.id)


class Installation:
    def __init__(self, database: Database) -> None:
        self._db = database

    def known(self) -> str:
        """Return the id, "" if nobody has asked for it yet."""
        with self._db.read() as transaction:
            return str(transaction.execute(_ID).scalar() or "")

    def id(self) -> str:
        """Return the id; it is made when it is first asked for, and goes with a backup."""
        if found := self.known():
            return found
        with self._db.write() as transaction:
            if found := str(transaction.execute(_ID).scalar() or ""):  # another process was first
                return found
            made = secrets.token_hex(8)
            transaction.execute(insert(installation).values(id=made))
            return made
