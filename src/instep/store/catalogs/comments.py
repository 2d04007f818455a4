"""Comments on changes. A comment is never changed; it goes with its connection."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, insert, select

from instep.model import Review
from instep.store.engine.database import Database
from instep.store.tables.catalogs import comments


@dataclass(frozen=True)
class Comment:
    """One comment on a change."""

    number: int
    change: str
    connection: str
    who: str
    at: datetime
    text: str


class Comments:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, review: Review, who: str, text: str) -> Comment:
        """Add a comment on a change; secrets that this process knows are taken out of it."""
        with self._db.write() as transaction:
            values = {"connection": review.connection, "change": review.id, "who": who, "at": self._db.now()}
            statement = insert(comments).values(**values, text=text).returning(comments)
            return Comment(**transaction.execute(statement).one()._mapping)

    def find(self, change: str, after: int = 0, limit: int = 100) -> list[Comment]:
        """Return the comments on a change with a higher number, oldest first."""
        where = (comments.c.change == change, comments.c.number > after)
        query = select(comments).where(*where).order_by(comments.c.number).limit(limit)
        with self._db.read() as transaction:
            return [Comment(**row._mapping) for row in transaction.execute(query)]

    def counts(self, changes: Collection[str]) -> Mapping[str, int]:
        """Return the number of comments on each of these changes that has some."""
        c = comments.c
        query = select(c.change, func.count()).where(c.change.in_(sorted(changes))).group_by(c.change)
        with self._db.read() as transaction:
            return {row[0]: row[1] for row in transaction.execute(query)}
