"""Renames on record: old names that readers may still use, renames that a person named, and undos under way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from instep.schema.planning.aliases import OldName
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database, by_connection
from instep.store.tables.catalogs import mappings, old_names, undos


class OldNames:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, connection: str, names: Iterable[OldName]) -> None:
        """Record old names before the rename is carried out; skip those that the same plan has already recorded."""
        recorded = {(n.batch, n.table, n.column, n.old) for n in self.of(connection)}
        new = [n for n in names if (n.batch, n.table, n.column, n.old) not in recorded]
        with self._db.write(connection) as transaction:
            ensure(transaction, connection, self._db.now())
            for name in new:
                transaction.execute(insert(old_names).values(connection=connection, **_values(name)))

    def replace_all(self, connection: str, names: Iterable[OldName]) -> None:
        """Set the old names of the connection to exactly these."""
        by_number = {n.number: n for n in names}
        with self._db.write(connection) as transaction:
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
        return self.of_many([connection])[connection]

    def of_many(self, names: Sequence[str]) -> dict[str, list[OldName]]:
        """Return `of` of several connections."""
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

    def request(self, connection: str, table: tuple[str, str], old: str, new: str, who: str) -> DeclaredRename:
        """Record a mapping that begins now; one that is under way already is answered as it is."""
        same = (m for m in self.waiting(connection) if (m.table, m.old, m.new) == (table, old, new))
        if (existing := next(same, None)) is not None:
            return existing
        values = {"table_schema": table[0], "table_name": table[1], "old": old, "new": new, "who": who}
        with self._db.write(connection) as transaction:
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
        """Return declared renames that are not applied, oldest first."""
        where = (mappings.c.connection == connection, mappings.c.ended.is_(None))
        with self._db.read() as transaction:
            return [
                _mapping(r) for r in transaction.execute(select(mappings).where(*where).order_by(mappings.c.number))
            ]


def _mapping(row: Row[Any]) -> DeclaredRename:
    return DeclaredRename(row.number, row.connection, (row.table_schema, row.table_name), row.old, row.new, row.who)


@dataclass(frozen=True)
class Undo:
    """A requested undo."""

    number: int
    connection: str
    changes: tuple[str, ...]
    """Ids of applied changes."""
    drops: tuple[str, ...]
    """The objects that a person has allowed it to drop."""
    who: str


class Undos:
    def __init__(self, database: Database) -> None:
        self._db = database

    def request(self, connection: str, changes: Iterable[str], drops: Iterable[str], who: str) -> Undo:
        """Record an undo that begins now; one of the same changes that is under way is answered as it is."""
        requested = tuple(changes)
        if (existing := next((u for u in self.waiting(connection) if u.changes == requested), None)) is not None:
            return existing
        values = {"changes": [*requested], "drops": [*drops], "who": who}
        with self._db.write(connection) as transaction:
            ensure(transaction, connection, self._db.now())
            query = insert(undos).values(connection=connection, at=self._db.now(), **values)
            number = transaction.execute(query.returning(undos.c.number)).scalar_one()
        return Undo(number, connection, requested, tuple(values["drops"]), who)

    def end(self, number: int) -> None:
        """Record that the undo was done or abandoned."""
        with self._db.write() as transaction:
            where = (undos.c.number == number, undos.c.ended.is_(None))
            transaction.execute(update(undos).where(*where).values(ended=self._db.now()))

    def waiting(self, connection: str) -> list[Undo]:
        """Return undos that are not done, oldest first."""
        where = (undos.c.connection == connection, undos.c.ended.is_(None))
        with self._db.read() as transaction:
            return [_undo(r) for r in transaction.execute(select(undos).where(*where).order_by(undos.c.number))]


def _undo(row: Row[Any]) -> Undo:
    return Undo(row.number, row.connection, tuple(row.changes), tuple(row.drops), row.who)
