"""Names that tables and columns had at the destination before they were renamed, while readers may still use them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from instep.schema.planning.aliases import OldName
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database, by_connection
from instep.store.tables.catalogs import old_names


class OldNames:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, connection: str, names: Iterable[OldName]) -> None:
        """Record old names before the rename is carried out; skip those that the same plan has already recorded."""
        known = {(n.batch, n.table, n.column, n.old) for n in self.of(connection)}
        new = [n for n in names if (n.batch, n.table, n.column, n.old) not in known]
        with self._db.write() as transaction:
            ensure(transaction, connection, self._db.now())
            for name in new:
                transaction.execute(insert(old_names).values(connection=connection, **_values(name)))

    def keep(self, connection: str, names: Iterable[OldName]) -> None:
        """Set the old names of the connection to exactly these."""
        by_number = {n.number: n for n in names}
        with self._db.write() as transaction:
            for was in self.of(connection):
                where = old_names.c.number == was.number
                if was.number not in by_number:
                    transaction.execute(delete(old_names).where(where))
                elif by_number[was.number] != was:
                    transaction.execute(update(old_names).where(where).values(**_values(by_number[was.number])))

    def extend(self, number: int, until: datetime) -> None:
        with self._db.write() as transaction:
            transaction.execute(update(old_names).where(old_names.c.number == number).values(until=until))

    def of(self, connection: str) -> list[OldName]:
        """Return all of a connection, oldest first."""
        return self.of_several([connection])[connection]

    def of_several(self, names: Sequence[str]) -> dict[str, list[OldName]]:
        """`of` several connections."""
        query = select(old_names).where(old_names.c.connection.in_(names)).order_by(old_names.c.number)
        with self._db.read() as transaction:
            rows = transaction.execute(query)
            return by_connection(names, ((row.connection, _name(row)) for row in rows))

    def now(self) -> datetime:
        """Return the store's clock."""
        return self._db.now()


def _values(name: OldName) -> dict[str, Any]:
    return {
        "namespace": name.table[0],
        "name": name.table[1],
        "column_name": name.column,
        "old": name.old,
        "until": name.until,
        "at": name.at,
        "batch": name.batch,
        "shown": name.shown,
        "trouble": name.trouble,
    }


def _name(row: Row[Any]) -> OldName:
    return OldName(
        (row.namespace, row.name),
        row.column_name,
        row.old,
        row.until,
        row.at,
        row.number,
        row.batch,
        row.shown,
        row.trouble,
    )
