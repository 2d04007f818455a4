"""Answers that were given, so that a request that is sent again is not carried out again."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, insert, select

from instep.store.engine.database import Database
from instep.store.tables.server import idempotency

RETENTION = timedelta(hours=24)
_SALT = hashlib.blake2b.SALT_SIZE


@dataclass(frozen=True)
class StoredAnswer:
    """The answer to a request, of which no more is kept than a digest with a salt of its own: it may hold secrets, and
    two that are the same must not look it."""

    digest: str = field(repr=False)
    status: int
    body: Mapping[str, Any] = field(hash=False)

    def answers(self, request: bytes) -> bool:
        """Return whether this is what was asked."""
        salt = bytes.fromhex(self.digest.partition(":")[0])
        return hmac.compare_digest(_digest(request, salt), self.digest)


class Idempotency:
    def __init__(self, database: Database) -> None:
        self._db = database

    def find(self, caller: str, token: str) -> StoredAnswer | None:
        """Return what `caller` was told the first time it sent this token, within a day."""
        c = idempotency.c
        query = select(idempotency).where(c.caller == caller, c.token == token, c.at > self._db.now() - RETENTION)
        with self._db.read() as transaction:
            row = transaction.execute(query).first()
        return StoredAnswer(row.request, row.status, row.body) if row else None

    def keep(self, caller: str, token: str, request: bytes, status: int, body: Mapping[str, Any]) -> None:
        """Store an answer in the transaction of its effect. Answers older than a day are deleted."""
        c, now = idempotency.c, self._db.now()
        with self._db.write() as transaction:
            transaction.execute(delete(idempotency).where(c.at <= now - RETENTION))
            digest = _digest(request, secrets.token_bytes(_SALT))
            values = {"request": digest, "status": status, "body": dict(body)}
            transaction.execute(insert(idempotency).values(caller=caller, token=token, at=now, **values))


def _digest(request: bytes, salt: bytes) -> str:
    return f"{salt.hex()}:{hashlib.blake2b(request, digest_size=32, salt=salt).hexdigest()}"
