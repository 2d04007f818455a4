"""Create, rotate and revoke API keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import ImmediateRequest, ImmediateSpec, Role
from instep.operations.values import LeadsTo, Length, Name, NameList, NumberRange

Days = Annotated[int, NumberRange(1, 3650)]


@dataclass(frozen=True)
class CreateKeyRequest(ImmediateRequest):
    """Create an API key. Its secret is in this answer and in no other."""

    name: Annotated[str, Length(1, 80), LeadsTo("name")]
    """What the key is for."""
    role: Role
    """What it may do."""
    groups: NameList = ()
    """Tags of the connections that it is for; none: all."""
    days: Days | None = None
    """How many days it lasts; null: until it is revoked."""


@dataclass(frozen=True)
class RotateKeyRequest(ImmediateRequest):
    """Give an API key another secret; the one before it still works for a while."""

    key: Name
    """The key's id, k-..."""
    overlap_hours: Annotated[int, NumberRange(0, 24 * 90)] = 168
    """How many hours the old secret still works."""
    days: Days | None = None
    """How many days the new secret lasts; null: until the key is revoked."""


@dataclass(frozen=True)
class RevokeKeyRequest(ImmediateRequest):
    """Revoke an API key: it is refused from now on."""

    key: Name
    """The key's id, k-..."""


SPECS = (
    ImmediateSpec(
        "create_key",
        role="admin",
        route="POST /keys",
        request=CreateKeyRequest,
        result="instep.control.immediate.keys:IssuedKey",
        work="instep.control.immediate.keys:KeyCreation",
        audit="key.create",
        target="name",
        status=201,
        told_once="secret",
        whole=True,
    ),
    ImmediateSpec(
        "rotate_key",
        role="admin",
        route="POST /keys/{key}/rotate",
        request=RotateKeyRequest,
        result="instep.control.immediate.keys:IssuedKey",
        work="instep.control.immediate.keys:KeyRotation",
        audit="key.rotate",
        target="key",
        match="key",
        status=201,
        told_once="secret",
        whole=True,
    ),
    ImmediateSpec(
        "revoke_key",
        role="admin",
        route="DELETE /keys/{key}",
        request=RevokeKeyRequest,
        result="instep.control.immediate.keys:RevokedKey",
        work="instep.control.immediate.keys:KeyRevocation",
        audit="key.revoke",
        target="key",
        match="key",
        whole=True,
    ),
)
