"""Create, rotate and revoke API keys.

Test and open a channel, and try a delivery again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import ImmediateRequest, ImmediateSpec, Role
from instep.operations.values import LeadsTo, Length, Name, NameList, NumberRange

Days = Annotated[int, NumberRange(1, 3650)]


@dataclass(frozen=True)
class CreateKeyRequest(ImmediateRequest):
    """Create an API key. Only this response contains its secret."""

    name: Annotated[str, Length(1, 80), LeadsTo("name")]
    """Name of the key."""
    role: Role
    """Role of the key."""
    groups: NameList = ()
    """Tags of the connections that the key may access; none: all."""
    days: Days | None = None
    """Days until the key expires; null: valid until it is revoked."""


@dataclass(frozen=True)
class RotateKeyRequest(ImmediateRequest):
    """Give an API key a new secret; the old one keeps working for a while."""

    key: Name
    """The key's id, k-..."""
    overlap_hours: Annotated[int, NumberRange(0, 24 * 90)] = 168
    """Hours for which the old secret keeps working."""
    days: Days | None = None
    """Days until the new secret expires; null: valid until the key is revoked."""


@dataclass(frozen=True)
class RevokeKeyRequest(ImmediateRequest):
    """Revoke an API key: it is refused from now on."""

    key: Name
    """The key's id, k-..."""


@dataclass(frozen=True)
class TestChannelRequest(ImmediateRequest):
    """Send a test message to a channel now and return the receiver's answer; with `dry_run` nothing is sent."""

    name: Name
    """The channel."""


@dataclass(frozen=True)
class OpenChannelRequest(ImmediateRequest):
    """Reopen a closed channel; pending notifications are sent."""

    name: Name
    """The channel."""


@dataclass(frozen=True)
class RetryDeliveryRequest(ImmediateRequest):
    """Retry a dead delivery now."""

    delivery: Annotated[int, NumberRange(1, 2**31 - 1)]
    """The delivery's number."""


SPECS = (
    ImmediateSpec(
        "create_key",
        role="admin",
        route="POST /keys",
        request=CreateKeyRequest,
        result="instep.control.immediate.govern:IssuedKey",
        work="instep.control.immediate.govern:KeyCreation",
        audit="key.create",
        target="name",
        status=201,
        secret_field="secret",
        whole=True,
    ),
    ImmediateSpec(
        "rotate_key",
        role="admin",
        route="POST /keys/{key}/rotate",
        request=RotateKeyRequest,
        result="instep.control.immediate.govern:IssuedKey",
        work="instep.control.immediate.govern:KeyRotation",
        audit="key.rotate",
        target="key",
        match="key",
        status=201,
        secret_field="secret",
        whole=True,
    ),
    ImmediateSpec(
        "revoke_key",
        role="admin",
        route="DELETE /keys/{key}",
        request=RevokeKeyRequest,
        result="instep.control.immediate.govern:RevokedKey",
        work="instep.control.immediate.govern:KeyRevocation",
        audit="key.revoke",
        target="key",
        match="key",
        whole=True,
    ),
    ImmediateSpec(
        "test_channel",
        role="operator",
        route="POST /channels/{name}/test",
        request=TestChannelRequest,
        result="instep.control.immediate.govern:TestedChannel",
        work="instep.control.immediate.govern:ChannelTesting",
        audit="channel.test",
        target="name",
    ),
    ImmediateSpec(
        "open_channel",
        role="operator",
        route="POST /channels/{name}/open",
        request=OpenChannelRequest,
        result="instep.control.immediate.govern:OpenedChannel",
        work="instep.control.immediate.govern:ChannelOpening",
        audit="channel.open",
        target="name",
        whole=True,
    ),
    ImmediateSpec(
        "retry_delivery",
        role="operator",
        route="POST /deliveries/{delivery}/retry",
        request=RetryDeliveryRequest,
        result="instep.control.immediate.govern:RetriedDelivery",
        work="instep.control.immediate.govern:DeliveryRetry",
        audit="delivery.retry",
        target="delivery",
        match="delivery",
        whole=True,
    ),
)
