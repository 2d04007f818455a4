"""The people behind the names on record: an API key is one person, who keeps that identity when the key is replaced.

A provider's person gets another key with each other role, and may choose another address; what stays is the `sub`.
"""

from __future__ import annotations

import re

from instep.errors import InstepError
from instep.store.server.api_keys import ApiKey, ApiKeys

OF_PROVIDER = "oidc "
"""Beginning of the creator of a key that a provider's person has: what follows is the same at each sign-in."""
AT_PAGE = "@local"
"""End of the name of a key of `instep ui`, behind the account that has run the command."""
_WITH_KEY = re.compile(r"(.*) \((k-[0-9a-z-]+)\)")


def persons(keys: ApiKeys, who: str) -> frozenset[str]:
    """Return the people of a record's `who`, which are equal for the same person under another key."""
    return frozenset(_person(keys, name) for name in who.split(", ") if name)


def has_right(keys: ApiKeys, who: str) -> bool:
    """Return whether what this person has requested still counts: not if their key was revoked since."""
    key = _key_of(keys, who)
    return key is None or key.ended is None


def _person(keys: ApiKeys, name: str) -> str:
    key = _key_of(keys, name)
    if key is None:
        return name
    return key.created_by if key.created_by.startswith(OF_PROVIDER) else key.name.removesuffix(AT_PAGE)


def _key_of(keys: ApiKeys, name: str) -> ApiKey | None:
    match = _WITH_KEY.fullmatch(name)
    try:
        key = keys.get(match[2]) if match else None
    except InstepError:
        return None
    return key if key is not None and match is not None and key.name == match[1] else None
