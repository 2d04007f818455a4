"""What does not run, and why: whole connections or single tables, each pause with its own reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, insert, select, update

from instep.model import Pause
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database, by_connection
from instep.store.tables.catalogs import pauses

Ref = tuple[str, str]


class Pauses:
    def __init__(self, database: Database) -> None:
        self._db = database

    def pause(self, connection: str, reason: str, *, change: str = "", table: Ref | None = None) -> bool:
        """Pause a connection or one table; False if the same change has paused it already. A table may be
        paused by several changes and runs when all of them have ended."""
        schema, name = table or ("", "")
        where = _active(connection, pauses.c.table_schema == schema, pauses.c.table_name == name)
        with self._db.write() as transaction:
            ensure(transaction, connection, self._db.now())
            if transaction.execute(select(pauses.c.number).where(*where, pauses.c.change == change)).first():
                return False
            values = {"connection": connection, "table_schema": schema, "table_name": name, "reason": reason}
            transaction.execute(insert(pauses).values(**values, change=change, since=self._db.now()))
            return True

    def resume(self, connection: str, *, who: str, table: Ref | None = None, change: str | None = None) -> list[Pause]:
        """End the pauses of the connection itself or of one table, or only that of `change`; answers the ended
        ones. Pauses of tables outlive the resuming of their connection."""
        schema, name = table or ("", "")
        where = _active(connection, pauses.c.table_schema == schema, pauses.c.table_name == name)
        return self._end(where, change, who)

    def resume_change(self, connection: str, change: str, *, who: str) -> list[Pause]:
        """End every pause that `change` has caused."""
        return self._end(_active(connection), change, who)

    def _end(self, where: list[ColumnElement[bool]], change: str | None, who: str) -> list[Pause]:
        if change is not None:
            where = [*where, pauses.c.change == change]
        with self._db.write() as transaction:
            ended = [_pause(row) for row in transaction.execute(select(pauses).where(*where))]
            transaction.execute(update(pauses).where(*where).values(ended=self._db.now(), ended_by=who))
            return ended

    def active(self, connection: str) -> list[Pause]:
        """Return all pauses in force, the connection's own first, then by table."""
        return self.active_of([connection])[connection]

    def active_of(self, names: Sequence[str]) -> dict[str, list[Pause]]:
        """`active` of several connections."""
        c = pauses.c
        query = select(pauses).where(c.connection.in_(names), c.ended.is_(None))
        query = query.order_by(c.table_schema, c.table_name, c.number)
        with self._db.read() as transaction:
            rows = [(row.connection, _pause(row)) for row in transaction.execute(query)]
        return by_connection(names, sorted(rows, key=lambda row: row[1].table is not None))

    def tables(self, connection: str) -> dict[Ref, Pause]:
        """Return the paused tables with the oldest reason of each."""
        found: dict[Ref, Pause] = {}
        for pause in self.active(connection):
            if pause.table is not None:
                found.setdefault(pause.table, pause)
        return found

    def whole(self, names: Sequence[str]) -> frozenset[str]:
        """Return those of these connections that are paused as a whole."""
        c = pauses.c
        query = select(c.connection).where(c.connection.in_(names), c.table_name == "", c.ended.is_(None))
        with self._db.read() as transaction:
            return frozenset(transaction.execute(query).scalars())

    def connection(self, connection: str) -> Pause | None:
        """Return the oldest pause of the whole connection."""
        whole = [pause for pause in self.active(connection) if pause.table is None]
        return whole[0] if whole else None


def _active(connection: str, *more: ColumnElement[bool]) -> list[ColumnElement[bool]]:
    return [pauses.c.connection == connection, pauses.c.ended.is_(None), *more]


def _pause(row: Row[Any]) -> Pause:
    table = (row.table_schema, row.table_name) if row.table_name else None
    return Pause(row.reason, row.since, row.change, table)
