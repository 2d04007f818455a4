"""Which columns the last load of each table has read, and which of them hashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import ColumnElement, delete, insert, select

from instep.schema.reselect import LoadedColumn
from instep.store.connections import ensure
from instep.store.database import Database
from instep.store.tables import loaded_columns

Ref = tuple[str, str]


class LoadedColumns:
    def __init__(self, database: Database) -> None:
        self._db = database

    def save(self, connection: str, found: Mapping[Ref, Sequence[LoadedColumn]]) -> None:
        """The columns of these accepted tables, in the place of what was recorded of them."""
        with self._db.write() as transaction:
            now = self._db.now()
            ensure(transaction, connection, now)
            for table, columns in found.items():
                transaction.execute(delete(loaded_columns).where(*_of(connection, table)))
                values = {"connection": connection, "table_schema": table[0], "table_name": table[1], "at": now}
                transaction.execute(insert(loaded_columns).values(**values, columns=[asdict(c) for c in columns]))

    def of(self, connection: str) -> dict[Ref, tuple[LoadedColumn, ...]]:
        """By accepted table; those that were never loaded are not there."""
        query = select(loaded_columns).where(loaded_columns.c.connection == connection)
        with self._db.read() as transaction:
            rows = transaction.execute(query).all()
        return {(r.table_schema, r.table_name): tuple(LoadedColumn(**c) for c in r.columns) for r in rows}

    def move(self, connection: str, moves: Mapping[Ref, Ref]) -> None:
        """What is known of renamed tables goes on under their new names; all at once, names may be swapped."""
        with self._db.write() as transaction:
            known = self.of(connection)
            for table in moves:
                transaction.execute(delete(loaded_columns).where(*_of(connection, table)))
            self.save(connection, {moves[t]: columns for t, columns in known.items() if t in moves})


def _of(connection: str, table: Ref) -> tuple[ColumnElement[bool], ...]:
    c = loaded_columns.c
    return c.connection == connection, c.table_schema == table[0], c.table_name == table[1]
