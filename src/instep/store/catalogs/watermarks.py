"""Where a table's cursor stood when a column that is not accepted was first seen."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import delete, insert, select

from instep.store.catalogs.connections import ensure
from instep.store.engine.database import Database
from instep.store.tables.catalogs import watermarks

Seen = tuple[str, str]
"""What the source knows a table and its column by: their ids, or their names where it has none."""


class Watermarks:
    def __init__(self, database: Database) -> None:
        self._db = database

    def of(self, connection: str) -> dict[Seen, str]:
        """Return the cursor (JSON, as it is recorded with the data) by column."""
        query = select(watermarks).where(watermarks.c.connection == connection)
        with self._db.read() as transaction:
            return {(row.table_key, row.column_key): row.cursor for row in transaction.execute(query)}

    def add(self, connection: str, found: Mapping[Seen, str]) -> None:
        """Add watermarks for columns that have none; an existing one is kept."""
        fresh = {seen: cursor for seen, cursor in found.items() if seen not in self.of(connection)}
        if not fresh:
            return
        with self._db.write() as transaction:
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
        with self._db.write() as transaction:
            transaction.execute(delete(watermarks).where(*where))
