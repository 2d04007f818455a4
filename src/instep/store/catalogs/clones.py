"""Copies of tables from before they were replaced, retained under their own names until a person purges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, insert, select, update

from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database, by_connection
from instep.store.tables.catalogs import copies

Ref = tuple[str, str]


@dataclass(frozen=True)
class Copy:
    """A copy kept of a table."""

    number: int
    table: Ref
    """The accepted table that it was made of."""
    place: Ref
    """Its (namespace, name) at the destination."""
    why: str
    rows: int
    at: datetime

    @property
    def line(self) -> str:
        """Return the text for people."""
        return f"{'.'.join(self.place)}: {self.rows:,} rows, {self.why}"


class Copies:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, connection: str, table: Ref, place: Ref, *, why: str, rows: int) -> None:
        """Record a copy; do nothing if its place is already recorded."""
        if any(c.place == place for c in self.existing(connection)):
            return
        values = {"table_schema": table[0], "table_name": table[1], "namespace": place[0], "name": place[1]}
        with self._db.write(connection) as transaction:
            ensure(transaction, connection, self._db.now())
            query = insert(copies).values(connection=connection, **values, why=why, rows=rows, at=self._db.now())
            transaction.execute(query)

    def end(self, number: int) -> None:
        """Record that the copy was purged."""
        with self._db.write() as transaction:
            where = (copies.c.number == number, copies.c.ended.is_(None))
            transaction.execute(update(copies).where(*where).values(ended=self._db.now()))

    def existing(self, connection: str) -> list[Copy]:
        """Return the copies that were not purged, oldest first."""
        return self.existing_of([connection])[connection]

    def existing_of(self, names: Sequence[str]) -> dict[str, list[Copy]]:
        """Return `existing` of several connections."""
        query = select(copies).where(copies.c.connection.in_(names), copies.c.ended.is_(None))
        with self._db.read() as transaction:
            rows = transaction.execute(query.order_by(copies.c.number))
            return by_connection(names, ((row.connection, _copy(row)) for row in rows))

    def move(self, connection: str, moves: Mapping[Ref, Ref]) -> None:
        """Record the copies of renamed tables under the new names; the copies keep their own."""
        with self._db.write(connection) as transaction:
            for copy in self.existing(connection):
                if (to := moves.get(copy.table)) is not None:
                    values = {"table_schema": to[0], "table_name": to[1]}
                    transaction.execute(update(copies).where(copies.c.number == copy.number).values(**values))


def _copy(row: Row[Any]) -> Copy:
    place = row.namespace, row.name
    return Copy(row.number, (row.table_schema, row.table_name), place, row.why, row.rows, row.at)
