"""Sealing of one secret: AES-256-GCM under a data key of its own, which a master key wraps.

Both layers are bound to where the secret stands, so that a row that was copied to another object, field or version
does not open.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass, replace

from instep.errors import InstepError
from instep.store.engine.keyring import BYTES, Keyring

NONCE = 12


@dataclass(frozen=True)
class SecretPlace:
    """Place of a secret: the JSON pointer `field` in the document of an object, and which write of it this is."""

    kind: str
    name: str
    field: str
    version: int

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.field}"

    def bound(self, *more: str) -> bytes:
        """Return what the seal is bound to, without ambiguity."""
        return json.dumps(["instep", self.kind, self.name, self.field, self.version, *more]).encode()


@dataclass(frozen=True)
class Sealed:
    """`wrapped` is the data key under the master key of id `key`, `value` the secret under the data key; base64."""

    key: str
    wrapped: str
    value: str


def seal(keys: Keyring, place: SecretPlace, secret: str) -> Sealed:
    data_key, current = os.urandom(BYTES), keys.current
    value = _encrypt(data_key, secret.encode(), place.bound())
    return Sealed(current, _wrap(keys.key(current), current, place, data_key), value)


def unseal(keys: Keyring, place: SecretPlace, sealed: Sealed) -> str:
    """Return the secret. ProjectError for a missing master key, InstepError if the seal does not fit."""
    data_key = _decrypt(keys.key(sealed.key), sealed.wrapped, place.bound(sealed.key), place)
    return _decrypt(data_key, sealed.value, place.bound(), place).decode()


def rewrap(keys: Keyring, place: SecretPlace, sealed: Sealed) -> Sealed:
    """Return the same secret under the current master key; the secret itself is not opened."""
    data_key = _decrypt(keys.key(sealed.key), sealed.wrapped, place.bound(sealed.key), place)
    current = keys.current  # once: another thread may read the keys again meanwhile
    return replace(sealed, key=current, wrapped=_wrap(keys.key(current), current, place, data_key))


def _wrap(key: bytes, id: str, place: SecretPlace, data_key: bytes) -> str:
    return _encrypt(key, data_key, place.bound(id))


def _encrypt(key: bytes, plain: bytes, bound: bytes) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE)
    return base64.b64encode(nonce + AESGCM(key).encrypt(nonce, plain, bound)).decode()


def _decrypt(key: bytes, text: str, bound: bytes, place: SecretPlace) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        raw = base64.b64decode(text, validate=True)
        return AESGCM(key).decrypt(raw[:NONCE], raw[NONCE:], bound)
    except (InvalidTag, ValueError):
        raise InstepError(
            f"the secret of {place} does not open: it was changed in the store, or its master key is another one",
            hint="write the secret again, or restore the store and the keys that belong together",
        ) from None
