"""The keys and cursors that people chose for tables; they outlive detections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Row, delete, insert, select

from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database
from instep.store.tables.catalogs import table_choices

Ref = tuple[str, str]
What = Literal["key", "cursor"]


@dataclass(frozen=True)
class KeyChoice:
    """`table` is the accepted one. `value`: the key's columns, or the cursor's one (none: the table has no cursor).
    `start`: where the first read by a new cursor begins, "" for the whole table."""

    table: Ref
    what: What
    value: tuple[str, ...]
    start: str
    who: str
    at: datetime


class Choices:
    def __init__(self, database: Database) -> None:
        self._db = database

    def set(self, connection: str, table: Ref, what: What, value: Iterable[str], *, start: str = "", who: str) -> None:
        """Take the place of what was chosen before."""
        c = table_choices.c
        with self._db.write() as transaction:
            ensure(transaction, connection, self._db.now())
            transaction.execute(delete(table_choices).where(*_of(connection, table), c.what == what))
            values = {"connection": connection, "table_schema": table[0], "table_name": table[1], "what": what}
            transaction.execute(
                insert(table_choices).values(**values, value=list(value), start=start, who=who, at=self._db.now())
            )

    def drop(self, connection: str, table: Ref, what: What) -> None:
        """Drop a choice: the project file or the source decides from now on."""
        with self._db.write() as transaction:
            transaction.execute(delete(table_choices).where(*_of(connection, table), table_choices.c.what == what))

    def of(self, connection: str) -> dict[tuple[Ref, What], KeyChoice]:
        """Return all that was chosen in a connection, by table and what it is about."""
        query = select(table_choices).where(table_choices.c.connection == connection)
        with self._db.read() as transaction:
            found = [_choice(row) for row in transaction.execute(query)]
        return {(choice.table, choice.what): choice for choice in found}

    def move(self, connection: str, moves: Mapping[Ref, Ref]) -> None:
        """What was chosen for renamed tables goes on under their new names; all at once, names may be swapped."""
        with self._db.write():
            moved = [choice for choice in self.of(connection).values() if choice.table in moves]
            for choice in moved:
                self.drop(connection, choice.table, choice.what)
            for c in moved:
                self.set(connection, moves[c.table], c.what, c.value, start=c.start, who=c.who)


def _of(connection: str, table: Ref) -> tuple[ColumnElement[bool], ...]:
    c = table_choices.c
    return c.connection == connection, c.table_schema == table[0], c.table_name == table[1]


def _choice(row: Row[Any]) -> KeyChoice:
    table = row.table_schema, row.table_name
    return KeyChoice(table, row.what, tuple(row.value), row.start, row.who, row.at)
