"""Audit log of the API: rows that are only ever added.

Each holds the digest of the one before it, so that a row that is changed, taken out or put in between is found. Rows
that are missing at the end are found by comparing the last digest with one that was noted elsewhere.

It also keeps the answers that were given, so that a repeated request is not carried out again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import delete, insert, select

from instep.store.engine.database import Database
from instep.store.tables.server import audit, idempotency

FIRST = "0" * 64


@dataclass(frozen=True)
class AuditEntry:
    """One entry of the audit log."""

    number: int
    """Number from 1 without gaps."""
    at: datetime
    actor: str
    action: str
    target: str
    detail: Mapping[str, Any] = field(hash=False)
    previous: str
    digest: str = ""

    def sealed(self) -> str:
        """Return the SHA-256, in hex, of the entry and of the digest before it."""
        parts = (self.at.astimezone(UTC).isoformat(timespec="microseconds"), self.actor, self.action, self.target)
        text = json.dumps([self.number, *parts, self.detail, self.previous], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Chain:
    """Result of an audit log check: the number of entries that form an unbroken chain, the digest of the last of them,
    and the reason why the next entry breaks the chain ("" if none does)."""

    entries: int
    head: str
    broken: str = ""


class Audit:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, actor: str, action: str, target: str, detail: Mapping[str, Any]) -> AuditEntry:
        """Add an entry; `detail` is JSON-ready and holds no secret."""
        with self._db.write() as transaction:
            query = select(audit.c.number, audit.c.digest).order_by(audit.c.number.desc()).limit(1)
            last = transaction.execute(query).first()
            number, previous = (last.number, last.digest) if last else (0, FIRST)
            plain = json.loads(json.dumps(dict(detail)))
            entry = AuditEntry(number + 1, self._db.now(), actor, action, target, plain, previous)
            transaction.execute(insert(audit).values(**{**vars(entry), "digest": entry.sealed()}))
        return AuditEntry(**{**vars(entry), "digest": entry.sealed()})

    def page(self, before: int | None = None, limit: int = 100, target: str = "") -> list[AuditEntry]:
        """Return entries newest first, those with a number below `before`; `target`: only those about this object."""
        query = select(audit).order_by(audit.c.number.desc()).limit(limit)
        if target:
            query = query.where(audit.c.target == target)
        if before is not None:
            query = query.where(audit.c.number < before)
        with self._db.read() as transaction:
            return [AuditEntry(**row) for row in transaction.execute(query).mappings()]

    def holds(self, digest: str) -> bool:
        """Return whether an entry has this digest; that of the beginning always does."""
        with self._db.read() as transaction:
            entry = transaction.execute(select(audit.c.number).where(audit.c.digest == digest).limit(1)).first()
        return digest == FIRST or entry is not None

    def check(self) -> Chain:
        """Check the whole chain, a thousand rows at a time."""
        number, head = 0, FIRST
        with self._db.read() as transaction:
            rows = transaction.execution_options(yield_per=1000).execute(select(audit).order_by(audit.c.number))
            for row in rows.mappings():
                entry = AuditEntry(**row)
                if why := _broken(entry, number, head):
                    return Chain(number, head, why)
                number, head = entry.number, entry.digest
        return Chain(number, head)


def _broken(entry: AuditEntry, number: int, head: str) -> str:
    if entry.number != number + 1:
        return f"entry {number + 1} is missing"
    if entry.previous != head:
        return f"entry {entry.number} does not follow entry {number}"
    return "" if entry.digest == entry.sealed() else f"entry {entry.number} was changed after it was written"


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
        """Return the answer that `caller` got the first time it sent this token, within a day."""
        c = idempotency.c
        query = select(idempotency).where(c.caller == caller, c.token == token, c.at > self._db.now() - RETENTION)
        with self._db.read() as transaction:
            row = transaction.execute(query).first()
        return StoredAnswer(row.request, row.status, row.body) if row else None

    def store_answer(self, caller: str, token: str, request: bytes, status: int, body: Mapping[str, Any]) -> None:
        """Store an answer in the transaction of its effect. Answers older than a day are deleted."""
        c, now = idempotency.c, self._db.now()
        with self._db.write() as transaction:
            transaction.execute(delete(idempotency).where(c.at <= now - RETENTION))
            digest = _digest(request, secrets.token_bytes(_SALT))
            values = {"request": digest, "status": status, "body": dict(body)}
            transaction.execute(insert(idempotency).values(caller=caller, token=token, at=now, **values))


def _digest(request: bytes, salt: bytes) -> str:
    return f"{salt.hex()}:{hashlib.blake2b(request, digest_size=32, salt=salt).hexdigest()}"
