"""A mirror of the cursors that destinations record with their data: for `status` and for planning only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, bindparam, insert, select

from instep.errors import Fenced
from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database
from instep.store.tables.catalogs import cursors

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

    def save(self, connection: str, found: Mapping[Ref, str], *, run: str, fence: int) -> None:
        """Cursor by table; raises Fenced if a later run has recorded one of them."""
        if not found:
            return
        c, now = cursors.c, self._db.now()
        with self._db.write() as transaction:
            ensure(transaction, connection, now)
            newer = select(c.table_schema, c.table_name).where(c.connection == connection, c.fence > fence)
            for schema, name in transaction.execute(newer):
                if (schema, name) in found:
                    raise Fenced(f"connection {connection}: a later run has loaded {schema}.{name}")
            same = (c.connection == connection, c.table_schema == bindparam("of"), c.table_name == bindparam("name"))
            transaction.execute(cursors.delete().where(*same), [{"of": s, "name": n} for s, n in found])
            common = {"connection": connection, "run": run, "fence": fence, "at": now}
            rows = [{"table_schema": s, "table_name": n, "cursor": cursor} for (s, n), cursor in found.items()]
            transaction.execute(insert(cursors), [row | common for row in rows])

    def of(self, connection: str) -> dict[Ref, CursorRecord]:
        with self._db.read() as transaction:
            rows = transaction.execute(select(cursors).where(cursors.c.connection == connection))
            return {record.table: record for record in map(_record, rows)}

    def reading(self, slot: str) -> frozenset[str]:
        """Return the connections that have a table whose log is read from this slot."""
        query = select(cursors.c.connection).distinct()
        names_slot = cursors.c.cursor.contains(f'"slot": {json.dumps(slot)}', autoescape=True)
        with self._db.read() as transaction:
            return frozenset(transaction.execute(query.where(names_slot)).scalars()) if slot else frozenset()

    def forget(self, connection: str, table: Ref) -> None:
        """The next load of the table starts from nothing."""
        c = cursors.c
        where = (c.connection == connection, c.table_schema == table[0], c.table_name == table[1])
        with self._db.write() as transaction:
            transaction.execute(cursors.delete().where(*where))


def _record(row: Row[Any]) -> CursorRecord:
    values = dict(row._mapping)
    return CursorRecord(table=(values.pop("table_schema"), values.pop("table_name")), **values)
