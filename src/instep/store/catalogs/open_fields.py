"""The fields of connectors' configurations that may be shown: those that a connector's own specification does not call
secret. Whoever shows a configuration runs no connector, so a worker that does leaves them here."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import insert, select

from instep.store.engine.database import Database
from instep.store.tables.catalogs import open_fields

Field = tuple[str, ...]
"""Names on the way to a value of a configuration; items of a list have the list's."""


class OpenFields:
    def __init__(self, database: Database) -> None:
        self._db = database

    def of(self, source: str, program: str) -> frozenset[Field]:
        """Return the fields of a source's configuration that may be shown; none before its connector was asked, or
        once `program`, the digest of what starts it, is another one."""
        c = open_fields.c
        query = select(c.fields).where(c.source == source, c.program == program)
        with self._db.read() as transaction:
            fields: list[list[str]] | None = transaction.execute(query).scalar()
        return frozenset(map(tuple, fields or ()))

    def note(self, source: str, program: str, fields: Sequence[Field]) -> None:
        """Keep the fields in the place of the source's former ones."""
        c, new = open_fields.c, {"program": program, "fields": [list(one) for one in fields]}
        known = select(c.program, c.fields).where(c.source == source)
        with self._db.read() as transaction:
            if (row := transaction.execute(known).first()) and dict(row._mapping) == new:
                return
        with self._db.write(common=True) as transaction:
            transaction.execute(open_fields.delete().where(c.source == source))
            transaction.execute(insert(open_fields).values(source=source, **new))
