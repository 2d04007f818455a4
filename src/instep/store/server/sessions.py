"""Sessions of the web page, passwords, and links that work once. Of secrets only a hash is stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update

from instep.store.engine.database import Database
from instep.store.server.api_keys import ApiKey, key_of
from instep.store.tables.server import api_secrets, passwords, sessions, sign_in_links


@dataclass(frozen=True)
class Session:
    """A browser that has signed in. Its rights are those of the key, as they are at each request."""

    key: ApiKey
    created: datetime
    expires: datetime


class Sessions:
    def __init__(self, database: Database) -> None:
        self._db = database

    def now(self) -> datetime:
        """Return the clock that expiry goes by."""
        return self._db.now()

    def begin(self, digest: str, key_id: str, expires: datetime, secret: str | None = None) -> None:
        """Add a session. One that was begun with an API secret, of this digest, ends with it. Forget those that have
        expired."""
        with self._db.write() as transaction:
            now = self._db.now()
            transaction.execute(delete(sessions).where(sessions.c.expires <= now))
            values = {"digest": digest, "key": key_id, "secret": secret, "created": now, "expires": expires}
            transaction.execute(insert(sessions).values(**values))

    def find(self, digest: str) -> Session | None:
        """Return the session of this digest; None if it has expired, or its key or secret is refused by now."""
        now = self._db.now()
        with self._db.read() as transaction:
            row = transaction.execute(select(sessions).where(sessions.c.digest == digest)).first()
            if row is None or row.expires <= now:
                return None
            if row.secret is not None and not _lives(transaction, row.secret, now):
                return None
            key = key_of(transaction, row.key)
        return None if key.ended else Session(key, row.created, row.expires)

    def end(self, digest: str) -> None:
        """Delete a session; one that does not exist is no error."""
        with self._db.write() as transaction:
            transaction.execute(delete(sessions).where(sessions.c.digest == digest))

    def end_all(self, key_id: str, but: str = "") -> None:
        """Delete all sessions and links of a key, except the session of this digest."""
        with self._db.write() as transaction:
            transaction.execute(delete(sessions).where(sessions.c.key == key_id, sessions.c.digest != but))
            transaction.execute(delete(sign_in_links).where(sign_in_links.c.key == key_id))

    def set_password(self, key_id: str, password_hash: str) -> None:
        """Replace the password of a key, of which only its hash is kept."""
        with self._db.write() as transaction:
            values = {"hash": password_hash, "changed": self._db.now()}
            where = passwords.c.key == key_id
            if not transaction.execute(update(passwords).where(where).values(**values)).rowcount:
                transaction.execute(insert(passwords).values(key=key_id, **values))

    def password_hash(self, key_id: str) -> str | None:
        """Return the hash of a key's password; None if it has none."""
        with self._db.read() as transaction:
            password_hash = transaction.execute(select(passwords.c.hash).where(passwords.c.key == key_id)).scalar()
            return None if password_hash is None else str(password_hash)

    def add_link(self, digest: str, key_id: str, expires: datetime) -> None:
        """Add a link that signs in once, until it expires."""
        with self._db.write() as transaction:
            transaction.execute(delete(sign_in_links).where(sign_in_links.c.expires <= self._db.now()))
            transaction.execute(insert(sign_in_links).values(digest=digest, key=key_id, expires=expires))

    def use_link(self, digest: str) -> ApiKey | None:
        """Take the link of this digest out and return its key; None if it is not there, has expired or was used."""
        with self._db.write() as transaction:
            row = transaction.execute(select(sign_in_links).where(sign_in_links.c.digest == digest)).first()
            if row is None:
                return None
            removed = transaction.execute(delete(sign_in_links).where(sign_in_links.c.digest == digest)).rowcount
            key = key_of(transaction, row.key)
            return key if removed and not key.ended and row.expires > self._db.now() else None


def _lives(transaction: Connection, secret: str, now: datetime) -> bool:
    row = transaction.execute(select(api_secrets).where(api_secrets.c.digest == secret)).first()
    return row is not None and (row.expires is None or row.expires > now)
