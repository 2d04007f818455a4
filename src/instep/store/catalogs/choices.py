"""Selection choices that people have made by command, and those that policy has listed off.

The keys and cursors that people chose for tables; they outlive detections.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Row, bindparam, delete, insert, select, update

from instep.schema.selection.overrides import Switch
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database, by_connection
from instep.store.tables.catalogs import switches, table_choices


class Switches:
    def __init__(self, database: Database) -> None:
        self._db = database

    def of(self, connection: str) -> list[Switch]:
        """Return the connection's, by name."""
        return self.of_many([connection])[connection]

    def of_many(self, names: Sequence[str]) -> dict[str, list[Switch]]:
        """Return `of` of several connections."""
        c = switches.c
        query = select(switches).where(c.connection.in_(names))
        with self._db.read() as transaction:
            rows = transaction.execute(query.order_by(c.table_schema, c.table_name, c.column_name))
            return by_connection(names, ((row.connection, _switch(row)) for row in rows))

    def set(self, connection: str, chosen: Sequence[Switch], who: str) -> None:
        """Store the choices, each in the place of the one about the same object; chosen now by `who`.

        Of several about one object, the last counts.
        """
        last = {(*switch.ref, switch.column): switch for switch in chosen}
        if not last:
            return
        with self._db.write(connection) as transaction:
            ensure(transaction, connection, self._db.now())
            c = switches.c
            same = (c.table_schema == bindparam("s"), c.table_name == bindparam("t"), c.column_name == bindparam("n"))
            places = [{"s": schema, "t": table, "n": column} for schema, table, column in last]
            transaction.execute(delete(switches).where(c.connection == connection, *same), places)
            now = self._db.now()
            transaction.execute(insert(switches), [_row(connection, s, who=who, at=now) for s in last.values()])

    def list_off(self, connection: str, left_out: Sequence[Switch]) -> None:
        """Record these objects as left out by policy, beside what people have chosen about them."""
        existing = {(*s.ref, s.column): s for s in self.of(connection)} if left_out else {}
        places = {(*s.ref, s.column): s for s in left_out}
        new = [s for place, s in places.items() if place not in existing]
        again = [s for place, s in places.items() if place in existing and not existing[place].listed_off]
        with self._db.write(connection) as transaction:
            if new:
                ensure(transaction, connection, now := self._db.now())
                transaction.execute(insert(switches), [_row(connection, s, who="", at=now) for s in new])
            for switch in again:
                transaction.execute(update(switches).where(*_about(connection, switch)).values(listed_off=True))

    def let_in(self, connection: str, left_out: Sequence[Switch]) -> None:
        """Take back that these objects were left out by policy; what people have chosen about them stays."""
        with self._db.write(connection) as transaction:
            for switch in left_out:
                if not switch.is_chosen:
                    _remove(transaction, connection, switch)
                else:
                    transaction.execute(update(switches).where(*_about(connection, switch)).values(listed_off=False))

    def forget(self, connection: str, chosen: Sequence[Switch]) -> None:
        """Delete the choices about these objects."""
        with self._db.write(connection) as transaction:
            for switch in chosen:
                _remove(transaction, connection, switch)

    def follow(self, connection: str, moves: Sequence[tuple[Switch, Switch]]) -> None:
        """Move choices to new names, given as (as recorded, as it is now): all at once, because names may be
        swapped. What was chosen for the new name itself stays."""
        with self._db.write(connection) as transaction:
            for old, _ in moves:
                _remove(transaction, connection, old)
            for _, new in moves:
                if transaction.execute(select(switches.c.connection).where(*_about(connection, new))).first() is None:
                    _add(transaction, connection, new, who=new.who, at=new.at or self._db.now())


def _about(connection: str, switch: Switch) -> tuple[ColumnElement[bool], ...]:
    c = switches.c
    return (
        c.connection == connection,
        c.table_schema == switch.schema,
        c.table_name == switch.table,
        c.column_name == switch.column,
    )


def _remove(transaction: Connection, connection: str, switch: Switch) -> None:
    transaction.execute(delete(switches).where(*_about(connection, switch)))


def _add(transaction: Connection, connection: str, switch: Switch, **when: Any) -> None:
    transaction.execute(insert(switches).values(**_row(connection, switch, **when)))


def _row(connection: str, switch: Switch, **when: Any) -> dict[str, Any]:
    return {
        "connection": connection,
        "table_schema": switch.schema,
        "table_name": switch.table,
        "column_name": switch.column,
        "enabled": switch.enabled,
        "hashed": switch.hashed,
        "table_id": switch.table_id,
        "column_id": switch.column_id,
        "identity": switch.identity,
        "listed_off": switch.listed_off,
        **when,
    }


def _switch(row: Row[Any]) -> Switch:
    return Switch(
        row.table_schema,
        row.table_name,
        row.column_name,
        row.enabled,
        row.hashed,
        row.table_id,
        row.column_id,
        row.identity,
        row.who,
        row.at,
        row.listed_off,
    )


Ref = tuple[str, str]
What = Literal["key", "cursor"]


@dataclass(frozen=True)
class KeyChoice:
    """A person's choice of a table's key or cursor."""

    table: Ref
    """The accepted one."""
    what: What
    value: tuple[str, ...]
    """The key's columns, or the cursor's one (none: the table has no cursor)."""
    start: str
    """Start of the first read by a new cursor, "" for the whole table."""
    who: str
    at: datetime


class Choices:
    def __init__(self, database: Database) -> None:
        self._db = database

    def set(self, connection: str, table: Ref, what: What, value: Iterable[str], *, start: str = "", who: str) -> None:
        """Take the place of what was chosen before."""
        c = table_choices.c
        with self._db.write(connection) as transaction:
            ensure(transaction, connection, self._db.now())
            transaction.execute(delete(table_choices).where(*_of(connection, table), c.what == what))
            values = {"connection": connection, "table_schema": table[0], "table_name": table[1], "what": what}
            transaction.execute(
                insert(table_choices).values(**values, value=list(value), start=start, who=who, at=self._db.now())
            )

    def drop(self, connection: str, table: Ref, what: What) -> None:
        """Drop a choice: the project file or the source decides from now on."""
        with self._db.write(connection) as transaction:
            transaction.execute(delete(table_choices).where(*_of(connection, table), table_choices.c.what == what))

    def of(self, connection: str) -> dict[tuple[Ref, What], KeyChoice]:
        """Return all that was chosen in a connection, by table and what it is about."""
        query = select(table_choices).where(table_choices.c.connection == connection)
        with self._db.read() as transaction:
            choices = [_choice(row) for row in transaction.execute(query)]
        return {(choice.table, choice.what): choice for choice in choices}

    def move(self, connection: str, moves: Mapping[Ref, Ref]) -> None:
        """Move choices to the new names of renamed tables; all at once, names may be swapped."""
        with self._db.write(connection):
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
