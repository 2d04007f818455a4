"""What people have switched on, off or hashed by command, until they say otherwise; and what policy has listed off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, delete, insert, select, update

from instep.schema.selection.overrides import Switch
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database, by_connection
from instep.store.tables.catalogs import switches


class Switches:
    def __init__(self, database: Database) -> None:
        self._db = database

    def of(self, connection: str) -> list[Switch]:
        """Return the connection's, by name."""
        return self.of_several([connection])[connection]

    def of_several(self, names: Sequence[str]) -> dict[str, list[Switch]]:
        """`of` several connections."""
        c = switches.c
        query = select(switches).where(c.connection.in_(names))
        with self._db.read() as transaction:
            rows = transaction.execute(query.order_by(c.table_schema, c.table_name, c.column_name))
            return by_connection(names, ((row.connection, _switch(row)) for row in rows))

    def set(self, connection: str, chosen: Sequence[Switch], who: str) -> None:
        """Each in the place of the one about the same object, if there is one; chosen now by `who`. Of several about
        one object, the last."""
        last = {(*switch.ref, switch.column): switch for switch in chosen}
        if not last:
            return
        with self._db.write() as transaction:
            ensure(transaction, connection, self._db.now())
            c = switches.c
            same = (c.table_schema == bindparam("s"), c.table_name == bindparam("t"), c.column_name == bindparam("n"))
            places = [{"s": schema, "t": table, "n": column} for schema, table, column in last]
            transaction.execute(delete(switches).where(c.connection == connection, *same), places)
            now = self._db.now()
            transaction.execute(insert(switches), [_row(connection, s, who=who, at=now) for s in last.values()])

    def list_off(self, connection: str, found: Sequence[Switch]) -> None:
        """Record these objects as left out by policy, beside what people have chosen about them."""
        known = {(*s.ref, s.column): s for s in self.of(connection)} if found else {}
        places = {(*s.ref, s.column): s for s in found}
        new = [s for place, s in places.items() if place not in known]
        again = [s for place, s in places.items() if place in known and not known[place].listed_off]
        with self._db.write() as transaction:
            if new:
                ensure(transaction, connection, now := self._db.now())
                transaction.execute(insert(switches), [_row(connection, s, who="", at=now) for s in new])
            for switch in again:
                transaction.execute(update(switches).where(*_about(connection, switch)).values(listed_off=True))

    def let_in(self, connection: str, found: Sequence[Switch]) -> None:
        """Take back that these objects were left out by policy; what people have chosen about them stays."""
        with self._db.write() as transaction:
            for switch in found:
                if not switch.is_chosen:
                    _remove(transaction, connection, switch)
                else:
                    transaction.execute(update(switches).where(*_about(connection, switch)).values(listed_off=False))

    def forget(self, connection: str, chosen: Sequence[Switch]) -> None:
        """Forget the choices about these objects."""
        with self._db.write() as transaction:
            for switch in chosen:
                _remove(transaction, connection, switch)

    def follow(self, connection: str, moves: Sequence[tuple[Switch, Switch]]) -> None:
        """(as it is kept, as it is now): all at once, because names may be swapped. What was chosen about the new
        name itself stands."""
        with self._db.write() as transaction:
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
