"""Answers that were given, so that a request that is sent again is not carried out again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, insert, select

from instep.store.database import Database
from instep.store.server_tables import idempotency

KEPT = timedelta(hours=24)


@dataclass(frozen=True)
class Given:
    """The answer to `request`, a digest of what was asked."""

    request: str
    status: int
    body: Mapping[str, Any] = field(hash=False)


class Idempotency:
    def __init__(self, database: Database) -> None:
        self._db = database

    def find(self, caller: str, token: str) -> Given | None:
        """What `caller` was told the first time it sent this token, within a day."""
        c = idempotency.c
        query = select(idempotency).where(c.caller == caller, c.token == token, c.at > self._db.now() - KEPT)
        with self._db.read() as transaction:
            row = transaction.execute(query).first()
        return Given(row.request, row.status, row.body) if row else None

    def keep(self, caller: str, token: str, given: Given) -> None:
        """In the transaction of what was done. Answers older than a day are let go."""
        c, now = idempotency.c, self._db.now()
        with self._db.write() as transaction:
            transaction.execute(delete(idempotency).where(c.at <= now - KEPT))
            values = {"request": given.request, "status": given.status, "body": dict(given.body)}
            transaction.execute(insert(idempotency).values(caller=caller, token=token, at=now, **values))
