"""Testing and opening channels, and trying deliveries again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instep.control.immediate.context import WriteContext
from instep.control.queries.govern import DeliveryDetails
from instep.notify.trial import try_channel
from instep.operations.immediate.notifications import OpenChannelRequest, RetryDeliveryRequest, TestChannelRequest
from instep.operations.queries.govern import GetDelivery
from instep.operations.spec import ImmediateWork
from instep.store.history.outbox import Delivery
from instep.store.store import utc_now


@dataclass(frozen=True)
class TestedChannel:
    """Result of a test message."""

    channel: str
    """The channel."""
    code: int
    """Status code of the receiver; 0 if the channel has none or nothing was sent."""


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

    def prepare(self, context: WriteContext, request: TestChannelRequest) -> int:
        """Send it: a slow receiver would hold up all writers of the store. Raises NotDelivered or ConnectError."""
        assert context.open_channel is not None, "whoever tests a channel can open one"
        channel = context.open_channel(request.name)
        return 0 if context.rehearsed else try_channel(channel, request.name, utc_now())

    def execute(self, context: WriteContext, request: TestChannelRequest, prepared: int | None) -> TestedChannel:
        """Return the receiver's answer."""
        return TestedChannel(request.name, prepared or 0)

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
        """Let it be due now; Conflict for one that is not dead."""
        DeliveryDetails().find(context, GetDelivery(request.delivery))
        return RetriedDelivery(context.store.outbox.retry(request.delivery))

    def detail(self, request: RetryDeliveryRequest, result: RetriedDelivery) -> Mapping[str, Any]:
        """Return the channel."""
        return {"channel": result.delivery.channel}
