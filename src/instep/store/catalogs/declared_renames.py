"""Renames that a person named, until they are carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, insert, select, update

from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database
from instep.store.tables.catalogs import mappings


@dataclass(frozen=True)
class DeclaredRename:
    """`table` is the accepted one; `old` and `new` are names of its columns. Without `old` it is about the table
    itself: `new` is the (schema, name) of the source's, as JSON."""

    number: int
    connection: str
    table: tuple[str, str]
    old: str
    new: str
    who: str


class Mappings:
    def __init__(self, database: Database) -> None:
        self._db = database

    def want(self, connection: str, table: tuple[str, str], old: str, new: str, who: str) -> DeclaredRename:
        """Record a mapping that begins now; one that is under way already is answered as it is."""
        known = (m for m in self.waiting(connection) if (m.table, m.old, m.new) == (table, old, new))
        if (found := next(known, None)) is not None:
            return found
        values = {"table_schema": table[0], "table_name": table[1], "old": old, "new": new, "who": who}
        with self._db.write() as transaction:
            ensure(transaction, connection, self._db.now())
            query = insert(mappings).values(connection=connection, at=self._db.now(), **values)
            number = transaction.execute(query.returning(mappings.c.number)).scalar_one()
        return DeclaredRename(number, connection, table, old, new, who)

    def end(self, number: int) -> None:
        """Record that the mapping was carried out or abandoned."""
        with self._db.write() as transaction:
            where = (mappings.c.number == number, mappings.c.ended.is_(None))
            transaction.execute(update(mappings).where(*where).values(ended=self._db.now()))

    def waiting(self, connection: str) -> list[DeclaredRename]:
        """Return those that are not carried out, oldest first."""
        where = (mappings.c.connection == connection, mappings.c.ended.is_(None))
        with self._db.read() as transaction:
            return [
                _mapping(r) for r in transaction.execute(select(mappings).where(*where).order_by(mappings.c.number))
            ]


def _mapping(row: Row[Any]) -> DeclaredRename:
    return DeclaredRename(row.number, row.connection, (row.table_schema, row.table_name), row.old, row.new, row.who)
