"""Documents of channels at work."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from instep.api.wire.base import Dry, Said


class Tested(Dry):
    """`code` is the receiver's answer, 0 where the channel has none."""

    channel: str
    code: int


class ChannelState(Said):
    """`waiting` notices are not delivered yet; `closed` says why nothing is sent, "" if it is."""

    channel: str
    waiting: int
    closed: str


class Opened(Dry):
    channel: str
    opened: bool


class DeliveryOut(Said):
    """`number` counts all; `id` is the same for every attempt."""

    number: int
    id: str
    channel: str
    urgent: bool
    notices: int
    status: Literal["waiting", "sent", "dead"]
    attempt: int
    due: datetime
    created: datetime
    ended: datetime | None
    error: str


class AttemptOut(Said):
    """`code` is the receiver's answer (HTTP or SMTP), 0 if there was none."""

    attempt: int
    at: datetime
    seconds: float
    code: int
    error: str


class DeliveryWithAttempts(DeliveryOut):
    attempts: list[AttemptOut]


class Retried(Dry):
    delivery: DeliveryOut
