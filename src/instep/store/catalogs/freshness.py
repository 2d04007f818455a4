"""Freshness of the rows of each table, and the tables that are known to be late."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select, true, update

from instep.store.engine.database import Database, of_tables
from instep.store.tables.catalogs import fresh_tables, pauses

Ref = tuple[str, str]


@dataclass(frozen=True)
class FreshTable:
    """Freshness of a table's rows."""

    as_of: datetime
    """Begin of the last sync that loaded it: its rows are at least as new."""
    late: datetime | None
    """Time from which on it is late, as channels have been told; None while it is on time."""


class FreshTables:
    def __init__(self, database: Database) -> None:
        self._db = database

    def loaded(self, connection: str, tables: Collection[Ref], as_of: datetime) -> None:
        """Record that a sync which began at `as_of` has loaded these tables."""
        with self._db.write(connection) as transaction:
            done = set[Ref]()
            c = fresh_tables.c
            for where in of_tables(fresh_tables, tables):
                mine = (c.connection == connection, where)
                done |= {(r[0], r[1]) for r in transaction.execute(select(c.table_schema, c.table_name).where(*mine))}
                transaction.execute(update(fresh_tables).where(*mine).values(as_of=as_of))
            rows = [
                {"connection": connection, "table_schema": ref[0], "table_name": ref[1], "as_of": as_of}
                for ref in sorted(set(tables) - done)
            ]
            if rows:
                transaction.execute(insert(fresh_tables), rows)

    def of(self, names: Sequence[str], only: Collection[Ref] | None = None) -> dict[str, dict[Ref, FreshTable]]:
        """Return the tables of each of these connections that a sync has loaded; `only`: of these tables."""
        fresh: dict[str, dict[Ref, FreshTable]] = {name: {} for name in names}
        query = select(fresh_tables).where(fresh_tables.c.connection.in_(names))
        with self._db.read() as transaction:
            for where in (true(),) if only is None else of_tables(fresh_tables, only):
                for row in transaction.execute(query.where(where)):
                    fresh[row.connection][row.table_schema, row.table_name] = FreshTable(row.as_of, row.late)
        return fresh

    def resumed(self, names: Sequence[str]) -> dict[str, dict[Ref, datetime]]:
        """Return when a pause of each table, or of the whole connection ("", ""), ended last."""
        c = pauses.c
        query = select(c.connection, c.table_schema, c.table_name, func.max(c.ended)).where(
            c.connection.in_(names), c.ended.is_not(None)
        )
        moments: dict[str, dict[Ref, datetime]] = {name: {} for name in names}
        with self._db.read() as transaction:
            for name, schema, table, at in transaction.execute(
                query.group_by(c.connection, c.table_schema, c.table_name)
            ):
                moments[name][schema, table] = at
        return moments

    def note_late(self, connection: str, since: Mapping[Ref, datetime]) -> list[Ref]:
        """Record that these tables are late; answers those of which nobody has recorded it."""
        with self._db.write(connection) as transaction:
            return [ref for ref, at in since.items() if _set(transaction, connection, ref, at)]

    def note_on_time(self, connection: str, tables: Collection[Ref]) -> list[Ref]:
        """Record that these tables are not late; answers those that were."""
        with self._db.write(connection) as transaction:
            return [ref for ref in tables if _set(transaction, connection, ref, None)]

    def count_late(self) -> dict[str, int]:
        """Return how many tables of each connection are known to be late."""
        c = fresh_tables.c
        query = select(c.connection, func.count()).where(c.late.is_not(None)).group_by(c.connection)
        with self._db.read() as transaction:
            return {row[0]: row[1] for row in transaction.execute(query)}


def keep_only(transaction: Connection, connection: str, tables: Collection[Ref]) -> None:
    """Forget the tables of a connection that are not among these, in the transaction that accepts them."""
    c = fresh_tables.c
    query = select(c.table_schema, c.table_name).where(c.connection == connection)
    gone = {(row[0], row[1]) for row in transaction.execute(query)} - set(tables)
    for where in of_tables(fresh_tables, gone):
        transaction.execute(fresh_tables.delete().where(c.connection == connection, where))


def _set(transaction: Connection, connection: str, ref: Ref, late: datetime | None) -> bool:
    """Return whether it was otherwise before."""
    c = fresh_tables.c
    before: Any = c.late.is_not(None) if late is None else c.late.is_(None)
    where = (c.connection == connection, c.table_schema == ref[0], c.table_name == ref[1], before)
    return transaction.execute(update(fresh_tables).where(*where).values(late=late)).rowcount == 1
