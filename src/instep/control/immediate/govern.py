"""API keys and channels: keys are created, rotated and revoked, channels tested and opened, deliveries tried again."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from instep.control.immediate.context import WriteContext
from instep.control.queries.govern import DeliveryDetails, KeyLookup
from instep.control.resources import api_keys
from instep.errors import Blocked
from instep.notify.channel import Channel
from instep.notify.lines import MessageLine
from instep.notify.message import Message
from instep.operations.immediate.govern import (
    CreateKeyRequest,
    OpenChannelRequest,
    RetryDeliveryRequest,
    RevokeKeyRequest,
    RotateKeyRequest,
    TestChannelRequest,
)
from instep.operations.queries.govern import GetDelivery, GetKey
from instep.operations.spec import ImmediateRequest, ImmediateWork
from instep.store.history.outbox import Delivery
from instep.store.server.api_keys import ApiKey
from instep.store.store import utc_now


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


@dataclass(frozen=True)
class TestedChannel:
    """Result of a test message."""

    channel: str
    """The channel."""
    code: int
    """Status code of the receiver; 0 if the channel has none or nothing was sent."""
    message: str = field(default="", repr=False)
    """The message as the receiver gets it, without signatures and logins."""


@dataclass(frozen=True)
class OpenedChannel:
    """A channel that is open again."""

    channel: str
    """The channel."""
    opened: bool
    """True if the channel was closed before."""


@dataclass(frozen=True)
class RetriedDelivery:
    """A delivery that is due again."""

    delivery: Delivery
    """The delivery as it is now."""


class ChannelTesting(ImmediateWork):
    """Send a message to one channel."""

    def prepare(self, context: WriteContext, request: TestChannelRequest) -> TestedChannel:
        """Send it: a slow receiver would hold up all writers of the store. Raises NotDelivered or ConnectError."""
        assert context.open_channel is not None, "whoever tests a channel can open one"
        channel, message = context.open_channel(request.name), trial(request.name, utc_now())
        code = 0 if context.rehearsed else try_channel(channel, message)
        return TestedChannel(request.name, code, channel.payload(message))

    def execute(
        self, context: WriteContext, request: TestChannelRequest, prepared: TestedChannel | None
    ) -> TestedChannel:
        """Return the receiver's answer."""
        return prepared or TestedChannel(request.name, 0)

    def detail(self, request: TestChannelRequest, result: TestedChannel) -> Mapping[str, Any]:
        """Return the receiver's answer."""
        return {"code": result.code}


class ChannelOpening(ImmediateWork):
    """Open one channel."""

    def execute(self, context: WriteContext, request: OpenChannelRequest, prepared: None) -> OpenedChannel:
        """Open it; ProjectError for a channel that the project does not have."""
        context.project.channel(request.name)
        return OpenedChannel(request.name, context.store.outbox.open(request.name))

    def detail(self, request: OpenChannelRequest, result: OpenedChannel) -> Mapping[str, Any]:
        """Return nothing: the channel is the target."""
        return {}


class DeliveryRetry(ImmediateWork):
    """Try one delivery again."""

    def execute(self, context: WriteContext, request: RetryDeliveryRequest, prepared: None) -> RetriedDelivery:
        """Make the delivery due now; raises Conflict for one that is not dead."""
        DeliveryDetails().find(context, GetDelivery(request.delivery))
        return RetriedDelivery(context.store.outbox.retry(request.delivery))

    def detail(self, request: RetryDeliveryRequest, result: RetriedDelivery) -> Mapping[str, Any]:
        """Return the channel."""
        return {"channel": result.delivery.channel}


def trial(name: str, at: datetime) -> Message:
    """Return the test message of a channel; its id is new."""
    line = MessageLine(at, (0,), "channel.test", "info", "plain", f"test of channel {name}", "it works", "test")
    return Message(f"m-{secrets.token_hex(12)}", at, (line,))


def try_channel(channel: Channel, message: Message) -> int:
    """Send a test at once, past the outbox; answers the receiver's code. Raises NotDelivered or ConnectError."""
    return channel.send(message)
