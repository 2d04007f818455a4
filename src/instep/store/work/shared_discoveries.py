"""Who looked at a source last: one look serves all connections of the source."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, insert, select

from instep.store.engine.database import Database
from instep.store.tables.queue import looks


@dataclass(frozen=True)
class Look:
    """A look at `source`, by the digest of its `settings`: it began at `begun`, and `connection` keeps what was seen,
    under `fingerprint`."""

    source: str
    settings: str
    connection: str
    fingerprint: str
    begun: datetime


class Looks:
    def __init__(self, database: Database) -> None:
        self._db = database

    def now(self) -> datetime:
        """Return the store's clock, for the begin of a look."""
        return self._db.now()

    def last(self, source: str, settings: str) -> Look | None:
        """Return the last look at the source as it is set now."""
        query = select(looks).where(looks.c.source == source, looks.c.settings == settings)
        with self._db.read() as transaction:
            row = transaction.execute(query).mappings().first()
            return Look(**row) if row else None

    def note(self, look: Look) -> None:
        """Record a detection in place of the source's last one, unless that began later."""
        c = looks.c
        with self._db.write() as transaction:
            begun = transaction.execute(select(c.begun).where(c.source == look.source)).scalar()
            if begun is not None and begun > look.begun:
                return
            transaction.execute(delete(looks).where(c.source == look.source))
            transaction.execute(insert(looks).values(**vars(look)))
