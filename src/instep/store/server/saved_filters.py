"""Filters of changes that people have saved under a name, each key its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, insert, select

from instep.errors import Blocked
from instep.store.engine.database import Database
from instep.store.tables.server import saved_filters

MOST = 100
"""Filters that one key may save."""


@dataclass(frozen=True)
class SavedFilter:
    """A filter with its name."""

    name: str
    filter: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of the query `list_changes`."""
    at: datetime | None = None


class SavedFilters:
    def __init__(self, database: Database) -> None:
        self._db = database

    def save(self, key: str, name: str, filter: Mapping[str, Any]) -> SavedFilter:
        """Save a filter of a key; one of the same name is replaced. Raises Blocked for one too many."""
        with self._db.write() as transaction:
            self._delete(transaction, key, name)
            number = select(func.count()).select_from(saved_filters).where(saved_filters.c.key == key)
            if transaction.execute(number).scalar_one() >= MOST:
                raise Blocked(f"there are {MOST} saved filters already", hint="delete one that is no longer needed")
            saved = SavedFilter(name, dict(filter), self._db.now())
            transaction.execute(insert(saved_filters).values(key=key, **vars(saved)))
            return saved

    def delete(self, key: str, name: str) -> bool:
        """Delete a filter; False if there is none of this name."""
        with self._db.write() as transaction:
            return self._delete(transaction, key, name)

    def find(self, key: str) -> list[SavedFilter]:
        """Return the filters of a key by name."""
        c = saved_filters.c
        query = select(c.name, c.filter, c.at).where(c.key == key).order_by(c.name)
        with self._db.read() as transaction:
            return [SavedFilter(**row._mapping) for row in transaction.execute(query)]

    @staticmethod
    def _delete(transaction: Any, key: str, name: str) -> bool:
        where = (saved_filters.c.key == key, saved_filters.c.name == name)
        return bool(transaction.execute(delete(saved_filters).where(*where)).rowcount)
