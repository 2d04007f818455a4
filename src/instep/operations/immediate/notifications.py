"""Test and open a channel, and try a delivery again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import ImmediateRequest, ImmediateSpec
from instep.operations.values import Name, NumberRange


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
        "test_channel",
        role="operator",
        route="POST /channels/{name}/test",
        request=TestChannelRequest,
        result="instep.control.immediate.notifications:TestedChannel",
        work="instep.control.immediate.notifications:ChannelTesting",
        audit="channel.test",
        target="name",
    ),
    ImmediateSpec(
        "open_channel",
        role="operator",
        route="POST /channels/{name}/open",
        request=OpenChannelRequest,
        result="instep.control.immediate.notifications:OpenedChannel",
        work="instep.control.immediate.notifications:ChannelOpening",
        audit="channel.open",
        target="name",
        whole=True,
    ),
    ImmediateSpec(
        "retry_delivery",
        role="operator",
        route="POST /deliveries/{delivery}/retry",
        request=RetryDeliveryRequest,
        result="instep.control.immediate.notifications:RetriedDelivery",
        work="instep.control.immediate.notifications:DeliveryRetry",
        audit="delivery.retry",
        target="delivery",
        match="delivery",
        whole=True,
    ),
)
