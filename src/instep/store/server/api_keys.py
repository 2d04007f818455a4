"""API keys: who may call the server. Of a secret only its SHA-256 is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from instep.errors import Conflict, InstepError
from instep.operations.spec import Role
from instep.store.engine.database import Database
from instep.store.tables.server import api_keys, api_secrets

LIVE_SECRETS = 2
_SEEN_EVERY = timedelta(minutes=1)  # "last used" is a hint: not every request is a write


@dataclass(frozen=True)
class ApiSecret:
    """One secret of a key, shown by its first characters."""

    prefix: str
    created: datetime
    expires: datetime | None
    """Time when it expires; null: never."""
    last_used: datetime | None

    def lives(self, now: datetime) -> bool:
        return self.expires is None or self.expires > now


PAGE_COMMAND = "instep ui"
"""The creator of the keys of those who open the page without an account."""


@dataclass(frozen=True)
class ApiKey:
    """An API key."""

    id: str
    name: str
    role: Role
    groups: tuple[str, ...]
    """The tags of the connections that it may access (none: all)."""
    created: datetime
    created_by: str = ""
    ended: datetime | None = None
    """The time since which it is refused."""
    ended_by: str = ""
    secrets: tuple[ApiSecret, ...] = field(default=())

    @property
    def who(self) -> str:
        """The name under which its requests are on record."""
        return f"{self.name} ({self.id})"

    @property
    def is_of_page(self) -> bool:
        """True for the key of `instep ui`, which has no secret: its sessions end with the command."""
        return self.created_by == PAGE_COMMAND

    def lives(self, now: datetime) -> bool:
        """Return whether a request with one of its secrets is accepted."""
        return self.ended is None and any(s.lives(now) for s in self.secrets)


class ApiKeys:
    def __init__(self, database: Database) -> None:
        self._db = database

    def now(self) -> datetime:
        """Return the clock that expiry goes by."""
        return self._db.now()

    def add(self, key_id: str, name: str, role: str, groups: Sequence[str], who: str) -> ApiKey:
        """Return a key without a secret yet. Raises Conflict if a key that lives is called so."""
        with self._db.write() as transaction:
            same = select(api_keys.c.id).where(api_keys.c.name == name, api_keys.c.ended.is_(None))
            if other := transaction.execute(same).scalar():
                raise Conflict(f"an API key {name!r} exists already ({other})", hint="rotate it, or use another name")
            values = {"id": key_id, "name": name, "role": role, "groups": list(groups)}
            transaction.execute(insert(api_keys).values(**values, created=self._db.now(), created_by=who))
            return key_of(transaction, key_id)

    def add_secret(self, key_id: str, digest: str, prefix: str, expires: datetime | None) -> ApiKey:
        """Raise Conflict if the key has been revoked, or has two secrets that live."""
        with self._db.write() as transaction:
            key, now = key_of(transaction, key_id), self._db.now()
            if key.ended:
                raise Conflict(f"API key {key_id} has been revoked", hint="make another one")
            if sum(s.lives(now) for s in key.secrets) >= LIVE_SECRETS:
                hint = "wait until the older one expires, or revoke the key"
                raise Conflict(f"API key {key_id} has two secrets already", hint=hint)
            values = {"digest": digest, "key": key_id, "prefix": prefix, "created": now, "expires": expires}
            transaction.execute(insert(api_secrets).values(**values))
            return key_of(transaction, key_id)

    def expire_secrets(self, key_id: str, at: datetime, but: str = "") -> None:
        """Expire the secrets of a key then, unless they expire earlier; not the one with the digest `but`."""
        c = api_secrets.c
        with self._db.write() as transaction:
            later = c.expires.is_(None) | (c.expires > at)
            where = (c.key == key_id, c.digest != but, later)
            transaction.execute(update(api_secrets).where(*where).values(expires=at))

    def end(self, key_id: str, who: str) -> ApiKey:
        """Revoke a key from now on; revoking it again changes nothing."""
        with self._db.write() as transaction:
            where = (api_keys.c.id == key_id, api_keys.c.ended.is_(None))
            transaction.execute(update(api_keys).where(*where).values(ended=self._db.now(), ended_by=who))
            return key_of(transaction, key_id)

    def get(self, key_id: str) -> ApiKey:
        """Raise InstepError if there is none."""
        with self._db.read() as transaction:
            return key_of(transaction, key_id)

    def named(self, name: str) -> ApiKey | None:
        """Return the key that is called so and was not revoked; there is at most one."""
        query = select(api_keys.c.id).where(api_keys.c.name == name, api_keys.c.ended.is_(None))
        with self._db.read() as transaction:
            key_id = transaction.execute(query).scalar()
            return key_of(transaction, key_id) if key_id else None

    def made_by(self, who: str) -> list[ApiKey]:
        """Return the keys that `who` has created and nobody has revoked."""
        query = select(api_keys.c.id).where(api_keys.c.created_by == who, api_keys.c.ended.is_(None))
        with self._db.read() as transaction:
            return [key_of(transaction, key_id) for key_id in transaction.execute(query).scalars()]

    def live(self, digest: str) -> ApiKey | None:
        """Return the key that is accepted with the secret of this digest; notes when it was used."""
        now, c = self._db.now(), api_secrets.c
        with self._db.read() as transaction:
            row = transaction.execute(select(api_secrets).where(c.digest == digest)).first()
            if row is None or (row.expires is not None and row.expires <= now):
                return None
            key = key_of(transaction, row.key)
        if key.ended:
            return None
        if row.last_used is None or row.last_used <= now - _SEEN_EVERY:
            with self._db.write() as transaction:
                transaction.execute(update(api_secrets).where(c.digest == digest).values(last_used=now))
        return key

    def page(self, after: str = "", limit: int = 100) -> list[ApiKey]:
        """Return a page of keys by id, behind `after`."""
        query = select(api_keys.c.id).where(api_keys.c.id > after).order_by(api_keys.c.id).limit(limit)
        with self._db.read() as transaction:
            return [key_of(transaction, key_id) for key_id in transaction.execute(query).scalars()]

    def count(self, role: str = "") -> int:
        """Return how many have ever been made; with a `role`, how many of it live."""
        with self._db.read() as transaction:
            if not role:
                return int(transaction.execute(select(func.count()).select_from(api_keys)).scalar_one())
            query = select(api_keys.c.id).where(api_keys.c.role == role, api_keys.c.ended.is_(None))
            keys = [key_of(transaction, key_id) for key_id in transaction.execute(query).scalars().all()]
        return sum(key.lives(self._db.now()) for key in keys)


def key_of(transaction: Connection, key_id: str) -> ApiKey:
    """Return a key with its secrets. Raises InstepError if there is none."""
    row = transaction.execute(select(api_keys).where(api_keys.c.id == key_id)).mappings().first()
    if row is None:
        raise InstepError(f"no API key {key_id!r} is known", hint="see `instep keys list`")
    query = select(api_secrets).where(api_secrets.c.key == key_id).order_by(api_secrets.c.created, api_secrets.c.digest)
    secrets = tuple(ApiSecret(s.prefix, s.created, s.expires, s.last_used) for s in transaction.execute(query))
    values: dict[str, Any] = {**row, "groups": tuple(row["groups"]), "secrets": secrets}
    return ApiKey(**values)
