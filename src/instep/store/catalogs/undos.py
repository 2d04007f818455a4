"""Changes that are being taken back, until that is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, insert, select, update

from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database
from instep.store.tables.catalogs import undos


@dataclass(frozen=True)
class Undo:
    """`changes` are ids of applied changes, `drops` the objects that a person has allowed it to drop."""

    number: int
    connection: str
    changes: tuple[str, ...]
    drops: tuple[str, ...]
    who: str


class Undos:
    def __init__(self, database: Database) -> None:
        self._db = database

    def want(self, connection: str, changes: Iterable[str], drops: Iterable[str], who: str) -> Undo:
        """Record an undo that begins now; one of the same changes that is under way is answered as it is."""
        wanted = tuple(changes)
        if (found := next((u for u in self.waiting(connection) if u.changes == wanted), None)) is not None:
            return found
        values = {"changes": [*wanted], "drops": [*drops], "who": who}
        with self._db.write() as transaction:
            ensure(transaction, connection, self._db.now())
            query = insert(undos).values(connection=connection, at=self._db.now(), **values)
            number = transaction.execute(query.returning(undos.c.number)).scalar_one()
        return Undo(number, connection, wanted, tuple(values["drops"]), who)

    def end(self, number: int) -> None:
        """Record that the undo was done or abandoned."""
        with self._db.write() as transaction:
            where = (undos.c.number == number, undos.c.ended.is_(None))
            transaction.execute(update(undos).where(*where).values(ended=self._db.now()))

    def waiting(self, connection: str) -> list[Undo]:
        """Return those that are not done, oldest first."""
        where = (undos.c.connection == connection, undos.c.ended.is_(None))
        with self._db.read() as transaction:
            return [_undo(r) for r in transaction.execute(select(undos).where(*where).order_by(undos.c.number))]


def _undo(row: Row[Any]) -> Undo:
    return Undo(row.number, row.connection, tuple(row.changes), tuple(row.drops), row.who)
