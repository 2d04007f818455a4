"""A message to see whether a channel works."""

from __future__ import annotations

import secrets
from datetime import datetime

from instep.notify.channel import Channel
from instep.notify.lines import MessageLine
from instep.notify.message import Message


def trial(name: str, at: datetime) -> Message:
    """Return what the test of a channel sends; its id is new."""
    line = MessageLine(at, (0,), "channel.test", "info", "plain", f"test of channel {name}", "it works", "test")
    return Message(f"m-{secrets.token_hex(12)}", at, (line,))


def try_channel(channel: Channel, name: str, at: datetime) -> int:
    """Send a test at once, past the outbox; answers the receiver's code. Raises NotDelivered or ConnectError."""
    return channel.send(trial(name, at))
