"""Signing in to the page: with a key's password, with its secret, or by a link that works once.

Passwords are stored as Argon2id hashes. A wrong name costs as much time as a wrong password.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from threading import BoundedSemaphore

from instep.control.resources.api_keys import authenticate
from instep.errors import InstepError, SetupError
from instep.store.server.api_keys import ApiKey
from instep.store.server.sessions import Session
from instep.store.store import Store

LASTS = timedelta(hours=12)
LINK_LASTS = timedelta(minutes=15)
SHORTEST, LONGEST = 12, 200
"""The bounds of a password's length, in characters."""
_hashing = BoundedSemaphore(4)
"""Passwords that are compared at the same time: each takes 64 MiB."""


@dataclass(frozen=True)
class StartedSession:
    """A session that has begun."""

    session: Session
    token: str = field(repr=False)
    """Token that its browser sends."""


def with_password(store: Store, name: str, password: str) -> StartedSession | None:
    """Begin the session of the key with this name and password; None for a wrong one."""
    key = store.api_keys.named(name)
    return begin(store, key) if is_password(store, key, password) and key else None


def is_password(store: Store, key: ApiKey | None, password: str) -> bool:
    """Return whether this is the key's password; without a key or a password of it, it takes as long to say no."""
    from argon2 import PasswordHasher
    from argon2.exceptions import Argon2Error, InvalidHash

    known = store.sessions.password_hash(key.id) if key else None
    try:
        with _hashing:
            PasswordHasher().verify(known or _dummy_hash(), password[: LONGEST + 1])
    except (Argon2Error, InvalidHash):
        return False
    return known is not None


def with_secret(store: Store, secret: str) -> StartedSession | None:
    """Begin a session with an API key's secret; None for one that is not accepted."""
    key = authenticate(store, secret)
    return begin(store, key, _digest(secret)) if key else None


def with_link(store: Store, token: str) -> StartedSession | None:
    """Begin the session of a one-time link; None for one that has expired or was used."""
    key = store.sessions.use_link(_digest(token))
    return begin(store, key) if key else None


def begin(store: Store, key: ApiKey, secret: str | None = None) -> StartedSession:
    """Begin a session of a key. `secret`: the digest of the API secret that it ends with."""
    token = secrets.token_urlsafe(32)
    with store.transaction():
        store.sessions.begin(_digest(token), key.id, store.sessions.now() + LASTS, secret)
        store.audit.add(key.who, "session.begin", key.id, {})
    session = session_of(store, token)
    if session is None:
        raise InstepError(f"API key {key.id} was revoked meanwhile", hint="sign in with another one")
    return StartedSession(session, token)


def session_of(store: Store, token: str) -> Session | None:
    """Return the session of a browser's token; None if it has ended."""
    return store.sessions.find(_digest(token)) if token else None


def end(store: Store, token: str) -> None:
    """End a session."""
    store.sessions.end(_digest(token))


def form_token(token: str) -> str:
    """Return the token that forms of this session carry, so that no other site can send them."""
    return hmac.new(token.encode(), b"form", hashlib.sha256).hexdigest()


def notice_mark(token: str, text: str) -> str:
    """Return the mark of a notice of this session, which nobody else can make."""
    return hmac.new(token.encode(), b"notice\n" + text.encode(), hashlib.sha256).hexdigest()


def make_link(store: Store, key: ApiKey) -> str:
    """Return the token of a link that signs in as this key once, within a quarter of an hour."""
    token = secrets.token_urlsafe(32)
    store.sessions.add_link(_digest(token), key.id, store.sessions.now() + LINK_LASTS)
    return token


def withdraw_link(store: Store, token: str) -> None:
    """Make a link useless that nobody has signed in by."""
    store.sessions.use_link(_digest(token))


def set_password(store: Store, key: ApiKey, password: str, token: str = "") -> None:
    """Set a key's password; its other sessions and links end. Raises InstepError for one that is too short or long."""
    if not SHORTEST <= len(password) <= LONGEST:
        hint = "take several words that do not belong together"
        raise InstepError(f"a password has {SHORTEST} to {LONGEST} characters", hint=hint)
    try:
        from argon2 import PasswordHasher
    except ModuleNotFoundError as error:
        raise SetupError("argon2-cffi is not installed", hint="pip install 'instep[server]'") from error
    with store.transaction():
        store.sessions.set_password(key.id, PasswordHasher().hash(password))
        store.sessions.end_all(key.id, but=_digest(token) if token else "")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@cache
def _dummy_hash() -> str:
    """Return the hash of no password, which a name that is not known is compared with."""
    from argon2 import PasswordHasher

    return PasswordHasher().hash(secrets.token_urlsafe(32))
