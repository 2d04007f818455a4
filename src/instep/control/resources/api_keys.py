"""API keys: made, rotated, revoked, recognised. A secret is told once and kept as its SHA-256: it is 256 random bits,
which no list of words has."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from instep.errors import Conflict, InstepError
from instep.operations.spec import Role
from instep.store.server.api_keys import ApiKey
from instep.store.server.resources import Link, LinkKind
from instep.store.store import Store

ROLES: tuple[Role, ...] = ("viewer", "operator", "approver", "admin")
PREFIX = "instep_sk_"
OVERLAP = timedelta(days=7)
_SHOWN = len(PREFIX) + 4
_SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")
_NAME = re.compile(r"[^\W_][\w .@-]{0,79}")


@dataclass(frozen=True)
class Issued:
    """A key with a secret that nobody can be told again."""

    key: ApiKey
    secret: str = field(repr=False)


def may(role: str, needed: Role) -> bool:
    """True if a role has the rights of `needed`: each role may do what those before it may."""
    return role in ROLES and ROLES.index(role) >= ROLES.index(needed)


def in_scope(groups: Collection[str], tags: Collection[str]) -> bool:
    """Return whether a key with these groups is for a connection with these tags, of which the name of its destination
    is one; a key without groups is for all."""
    return not groups or not set(groups).isdisjoint(tags)


def create(
    store: Store, name: str, role: str, who: str, *, groups: Sequence[str] = (), lasts: timedelta | None = None
) -> Issued:
    """Return a key that lasts so long, or until it is revoked. Raises InstepError for a name or role that is none,
    Conflict for a name that is in use."""
    if not _NAME.fullmatch(name):
        hint = "up to 80 letters, digits, spaces and . _ @ -, a letter or digit first"
        raise InstepError(f"{name!r} cannot be the name of an API key", hint=hint)
    if role not in ROLES:
        raise InstepError(f"there is no role {role!r}", hint=f"use one of: {', '.join(ROLES)}")
    with store.transaction():
        key = store.api_keys.add(f"k-{secrets.token_hex(6)}", name, role, groups, who)
        return _issue(store, key, lasts)


def rotate(store: Store, key_id: str, *, overlap: timedelta = OVERLAP, lasts: timedelta | None = None) -> Issued:
    """Add a second secret to a key; the old one ends after `overlap`. Raises Conflict for a key that has two
    already, or that was revoked."""
    with store.transaction():
        key = store.api_keys.get(key_id)
        if not overlap:
            store.api_keys.expire_secrets(key_id, store.api_keys.now())
        issued = _issue(store, key, lasts)
        new = issued.secret
        if overlap:
            store.api_keys.expire_secrets(key_id, store.api_keys.now() + overlap, but=_digest(new))
        return Issued(store.api_keys.get(key_id), new)


def revoke(store: Store, key_id: str, who: str) -> ApiKey:
    """End a key at once, with its waiting jobs. Raises Conflict for the last admin key, without which nobody could make
    another one."""
    with store.transaction():
        key, now = store.api_keys.get(key_id), store.api_keys.now()
        if key.role == "admin" and key.lives(now) and store.api_keys.count("admin") == 1:
            raise Conflict(f"API key {key_id} is the last admin key", hint="make another admin key first")
        return end(store, key_id, who)


def end(store: Store, key_id: str, who: str) -> ApiKey:
    """End a key, and cancel the jobs that wait on its word alone."""
    with store.transaction():
        ended = store.api_keys.end(key_id, who)
        store.jobs.cancel_requested(ended.who, who)
        return ended


def first_admin(store: Store) -> Issued | None:
    """Return the first key of all; None if there has ever been one."""
    with store.transaction():
        return None if store.api_keys.count() else create(store, "first admin", "admin", "instep server")


def authenticate(store: Store, secret: str, key_id: str | None = None) -> ApiKey | None:
    """Return the key that this secret is of, and that is called so if `key_id` is given; None if it is not let in."""
    if not _SECRET.fullmatch(secret):
        return None
    key = store.api_keys.live(_digest(secret))
    if key is None or (key_id is not None and not hmac.compare_digest(key.id.encode(), key_id.encode())):
        return None
    return key


def _issue(store: Store, key: ApiKey, lasts: timedelta | None) -> Issued:
    secret = PREFIX + secrets.token_urlsafe(32)
    expires = store.api_keys.now() + lasts if lasts is not None else None
    return Issued(store.api_keys.add_secret(key.id, _digest(secret), secret[:_SHOWN], expires), secret)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def links_of_groups(groups: Collection[str]) -> list[Link]:
    """Return the links of which a connection of one of these groups has one."""
    kinds: tuple[LinkKind, ...] = ("tag", "destination")
    return [(kind, group) for kind in kinds for group in groups]
