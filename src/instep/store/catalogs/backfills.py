"""Requested backfills and their status.

Where a table's cursor stood when a column that is not accepted was first seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Row, bindparam, delete, exists, insert, select, update

from instep.operations.values import BackfillStatus
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database, by_connection, of_tables
from instep.store.tables.catalogs import backfills, loaded_columns, watermarks

Scope = Literal["table", "column", "since", "extra"]
BY_PERSON = "asked for by "
"""Beginning of `Backfill.why` where somebody has asked for it."""


@dataclass(frozen=True)
class Backfill:
    """A backfill of a table or a column."""

    number: int
    connection: str
    table: tuple[str, str]
    column: str
    """Empty for a whole table."""
    scope: Scope
    """`since` reads the rows again that changed since the column was first seen; `extra` reads nothing from the
    source: it moves the values kept as JSON in `_instep_extra` into the column."""
    why: str
    change: str
    """The change that caused it, if any."""
    status: BackfillStatus
    run: str
    requested_at: datetime
    ended: datetime | None = None

    @property
    def is_required(self) -> bool:
        """Return whether the table would differ from its source without it, and no sync would tell: rows of a column
        that lack its values are told of. Values kept as JSON may be nowhere else, and the next load would replace
        them."""
        return self.scope == "extra" or (self.scope == "table" and not self.why.startswith(BY_PERSON))


class Backfills:
    def __init__(self, database: Database) -> None:
        self._db = database

    def request(
        self,
        connection: str,
        table: tuple[str, str],
        *,
        column: str = "",
        why: str = "",
        change: str = "",
        scope: Scope | None = None,
        instead: bool = False,
    ) -> bool:
        """Ask for a column, or for the whole table without one, unless `scope` says; False if that is waiting
        already, since now: if only a person has asked for it so far, for this reason from now on. `instead`: what waits
        for the same is called off, because this one asks for more of it."""
        c = backfills.c
        scope = scope or ("column" if column else "table")
        same = (
            c.connection == connection,
            c.table_schema == table[0],
            c.table_name == table[1],
            c.column_name == column,
            c.scope == scope,
            c.status.in_(("requested", "running")),
        )
        with self._db.write(connection) as transaction:
            ensure(transaction, connection, self._db.now())
            if instead:
                transaction.execute(update(backfills).where(*same).values(status="cancelled", ended=self._db.now()))
            elif transaction.execute(update(backfills).where(*same).values(requested_at=self._db.now())).rowcount:
                if not why.startswith(BY_PERSON):
                    by_person = c.why.startswith(BY_PERSON, autoescape=True)
                    transaction.execute(update(backfills).where(*same, by_person).values(why=why, change=change))
                return False
            transaction.execute(
                insert(backfills).values(
                    connection=connection,
                    table_schema=table[0],
                    table_name=table[1],
                    column_name=column,
                    scope=scope,
                    why=why,
                    change=change,
                    status="requested",
                    requested_at=self._db.now(),
                )
            )
            return True

    def start(self, number: int, run: str) -> None:
        """Record the run that works on it."""
        self._set(number, ("requested", "running"), status="running", run=run)

    def done(self, number: int) -> None:
        self._set(number, ("requested", "running"), status="done", ended=self._db.now())

    def cancel(self, number: int) -> None:
        self._set(number, ("requested", "running"), status="cancelled", ended=self._db.now())

    def _set(self, number: int, was: Sequence[BackfillStatus], **values: Any) -> None:
        where = (backfills.c.number == number, backfills.c.status.in_(was))
        with self._db.write() as transaction:
            transaction.execute(update(backfills).where(*where).values(**values))

    def record_read(self, connection: str, tables: Collection[tuple[str, str]], *, why: str, run: str) -> None:
        """Record a done backfill of each of these tables, which a run has read as a whole without one."""
        with self._db.write(connection) as transaction:
            now = self._db.now()
            rows = [
                {"table_schema": schema, "table_name": table, "column_name": "", "scope": "table", "status": "done"}
                for schema, table in sorted(set(tables))
            ]
            if rows:
                ensure(transaction, connection, now)
                common = {"connection": connection, "why": why, "run": run, "requested_at": now, "ended": now}
                transaction.execute(insert(backfills), [row | common for row in rows])

    def move(self, connection: str, moves: Mapping[tuple[str, str], tuple[str, str]]) -> None:
        """Move done backfills to the new names of renamed tables; all at once, names may be swapped."""
        self._rename(connection, moves, lambda table, column: (moves[table], column))

    def rename(self, connection: str, names: Mapping[tuple[tuple[str, str], str], str]) -> None:
        """Move done backfills to the new names of renamed columns, by table and old name; all at once."""
        tables = {table for table, _ in names}
        self._rename(connection, tables, lambda table, column: (table, names.get((table, column), column)))

    def _rename(
        self,
        connection: str,
        tables: Collection[tuple[str, str]],
        act: Callable[[tuple[str, str], str], tuple[tuple[str, str], str]],
    ) -> None:
        c = backfills.c
        done = select(c.number, c.table_schema, c.table_name, c.column_name)
        done = done.where(c.connection == connection, c.status == "done")
        with self._db.write(connection) as transaction:
            rows = [row for of in of_tables(backfills, tables) for row in transaction.execute(done.where(of))]
            moves = []
            for number, *before, column in rows:
                (schema, table), name = act((before[0], before[1]), column)
                if (schema, table, name) != (*before, column):
                    moves.append({"of": number, "to_schema": schema, "to_table": table, "to_column": name})
            if moves:
                values: dict[str, Any] = {
                    "table_schema": bindparam("to_schema"),
                    "table_name": bindparam("to_table"),
                    "column_name": bindparam("to_column"),
                }
                transaction.execute(update(backfills).where(c.number == bindparam("of")).values(values), moves)

    def waiting(self, connection: str) -> list[Backfill]:
        """Return requested or interrupted backfills, oldest first."""
        return self.waiting_of([connection])[connection]

    def waiting_of(self, names: Sequence[str]) -> dict[str, list[Backfill]]:
        """Return `waiting` of several connections."""
        c = backfills.c
        query = select(backfills).where(c.connection.in_(names), c.status.in_(("requested", "running")))
        with self._db.read() as transaction:
            rows = transaction.execute(query.order_by(c.number))
            return by_connection(names, ((row.connection, _backfill(row)) for row in rows))

    def find(self, connection: str, statuses: Sequence[BackfillStatus] = ()) -> list[Backfill]:
        query = select(backfills).where(backfills.c.connection == connection).order_by(backfills.c.number)
        if statuses:
            query = query.where(backfills.c.status.in_(statuses))
        with self._db.read() as transaction:
            return [_backfill(row) for row in transaction.execute(query)]

    def filled(self, connection: str, tables: Collection[tuple[str, str]]) -> dict[tuple[str, str], set[str]]:
        """Return the columns that backfills have brought into all rows of these tables, since what their loads have
        read was recorded last: an earlier one may have been of another column of that name. A table without any is
        left out."""
        c, loads = backfills.c, loaded_columns.c
        done = (c.connection == connection, c.status == "done", c.scope != "since", c.column_name != "")
        same = (loads.connection == connection, loads.table_schema == c.table_schema, loads.table_name == c.table_name)
        recorded = exists().where(*same, loads.at > c.ended)
        query = select(c.table_schema, c.table_name, c.column_name).where(*done, ~recorded).distinct()
        filled: dict[tuple[str, str], set[str]] = {}
        with self._db.read() as transaction:
            for these in of_tables(backfills, tables):
                for schema, table, column in transaction.execute(query.where(these)):
                    filled.setdefault((schema, table), set()).add(column)
        return filled


def _backfill(row: Row[Any]) -> Backfill:
    values = dict(row._mapping)
    table = values.pop("table_schema"), values.pop("table_name")
    return Backfill(table=table, column=values.pop("column_name"), **values)


Seen = tuple[str, str]
"""Identity of a table and its column at the source: ids, or names where it has none."""


class Watermarks:
    def __init__(self, database: Database) -> None:
        self._db = database

    def of(self, connection: str) -> dict[Seen, str]:
        """Return the cursor (JSON, as it is recorded with the data) by column."""
        query = select(watermarks).where(watermarks.c.connection == connection)
        with self._db.read() as transaction:
            return {(row.table_key, row.column_key): row.cursor for row in transaction.execute(query)}

    def add(self, connection: str, cursors: Mapping[Seen, str]) -> None:
        """Add watermarks for columns that have none; an existing one is kept."""
        fresh = {seen: cursor for seen, cursor in cursors.items() if seen not in self.of(connection)}
        if not fresh:
            return
        with self._db.write(connection) as transaction:
            now = self._db.now()
            ensure(transaction, connection, now)
            rows = [
                {"connection": connection, "table_key": table, "column_key": column, "cursor": cursor, "at": now}
                for (table, column), cursor in fresh.items()
            ]
            transaction.execute(insert(watermarks), rows)

    def forget(self, connection: str, seen: Seen) -> None:
        c = watermarks.c
        where = (c.connection == connection, c.table_key == seen[0], c.column_key == seen[1])
        with self._db.write(connection) as transaction:
            transaction.execute(delete(watermarks).where(*where))
