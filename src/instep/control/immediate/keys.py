"""Creating, rotating and revoking API keys, in the store alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from instep.control.immediate.context import WriteContext
from instep.control.queries.keys import KeyLookup
from instep.control.resources import api_keys
from instep.errors import Blocked
from instep.operations.immediate.keys import CreateKeyRequest, RevokeKeyRequest, RotateKeyRequest
from instep.operations.queries.keys import GetKey
from instep.operations.spec import ImmediateRequest, ImmediateWork
from instep.store.server.api_keys import ApiKey


@dataclass(frozen=True)
class IssuedKey:
    """A key with its new secret, which is shown only once."""

    key: ApiKey
    """The key."""
    secret: str | None = field(repr=False)
    """The secret; null if none was issued, or if it was shown before."""

    def secret_once(self) -> str:
        """Return the secret; Blocked if the answer that had it was lost, and this one is to the same request again."""
        if self.secret is None:
            raise Blocked(
                f"API key {self.key.id} was made, but the answer with its secret was lost on the way",
                hint=f"`instep keys rotate {self.key.id} --overlap-hours 0` gives it another one",
            )
        return self.secret


@dataclass(frozen=True)
class RevokedKey:
    """A revoked key."""

    key: ApiKey
    """The key."""


class _Issuing(ImmediateWork):
    """Issue a secret."""

    def detail(self, request: ImmediateRequest, result: IssuedKey) -> Mapping[str, Any]:
        """Return the key without its secret."""
        key = result.key
        return {"key": key.id, "name": key.name, "role": key.role, "groups": list(key.groups)}


class KeyCreation(_Issuing):
    """Create a key."""

    def execute(self, context: WriteContext, request: CreateKeyRequest, prepared: None) -> IssuedKey:
        """Create it; InstepError for a name or role that is none, Conflict for a name that is in use."""
        lasts = _lasts(request.days)
        issued = api_keys.create(
            context.store, request.name, request.role, context.who, groups=request.groups, lasts=lasts
        )
        return IssuedKey(issued.key, issued.secret)


class KeyRotation(_Issuing):
    """Give a key another secret."""

    def execute(self, context: WriteContext, request: RotateKeyRequest, prepared: None) -> IssuedKey:
        """Rotate it; Conflict for a key that has two secrets already, or that has been revoked."""
        overlap, lasts = timedelta(hours=request.overlap_hours), _lasts(request.days)
        issued = api_keys.rotate(
            context.store, KeyLookup().find(context, GetKey(request.key)).id, overlap=overlap, lasts=lasts
        )
        return IssuedKey(issued.key, issued.secret)


class KeyRevocation(ImmediateWork):
    """End a key."""

    def execute(self, context: WriteContext, request: RevokeKeyRequest, prepared: None) -> RevokedKey:
        """Revoke it; Conflict for the last admin key."""
        return RevokedKey(
            api_keys.revoke(context.store, KeyLookup().find(context, GetKey(request.key)).id, context.who)
        )

    def detail(self, request: RevokeKeyRequest, result: RevokedKey) -> Mapping[str, Any]:
        """Return the name of the key."""
        return {"name": result.key.name}


def _lasts(days: int | None) -> timedelta | None:
    return timedelta(days=days) if days is not None else None
