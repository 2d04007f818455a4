"""A mirror of the cursors that destinations record with their data: for `status` and for planning only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, insert, select

from instep.errors import Fenced
from instep.store.connections import ensure
from instep.store.database import Database
from instep.store.tables import cursors

Ref = tuple[str, str]


@dataclass(frozen=True)
class CursorRecord:
    """`cursor` is the JSON text of the data commit by `run`, which held `fence`."""

    connection: str
    table: Ref
    cursor: str
    run: str
    fence: int
    at: datetime


class Cursors:
    def __init__(self, database: Database) -> None:
        self._db = database

    def save(self, connection: str, table: Ref, cursor: str, *, run: str, fence: int) -> None:
        """Raises Fenced if a later run has recorded one."""
        c = cursors.c
        where = (c.connection == connection, c.table_schema == table[0], c.table_name == table[1])
        with self._db.write() as transaction:
            ensure(transaction, connection, self._db.now())
            newest = transaction.execute(select(c.fence).where(*where)).scalar()
            if newest is not None and newest > fence:
                raise Fenced(f"connection {connection}: a later run has loaded {'.'.join(table)}")
            transaction.execute(cursors.delete().where(*where))
            values = {"connection": connection, "table_schema": table[0], "table_name": table[1]}
            transaction.execute(
                insert(cursors).values(**values, cursor=cursor, run=run, fence=fence, at=self._db.now())
            )

    def of(self, connection: str) -> dict[Ref, CursorRecord]:
        with self._db.read() as transaction:
            rows = transaction.execute(select(cursors).where(cursors.c.connection == connection))
            return {record.table: record for record in map(_record, rows)}

    def forget(self, connection: str, table: Ref) -> None:
        """The next load of the table starts from nothing."""
        c = cursors.c
        where = (c.connection == connection, c.table_schema == table[0], c.table_name == table[1])
        with self._db.write() as transaction:
            transaction.execute(cursors.delete().where(*where))


def _record(row: Row[Any]) -> CursorRecord:
    values = dict(row._mapping)
    return CursorRecord(table=(values.pop("table_schema"), values.pop("table_name")), **values)
