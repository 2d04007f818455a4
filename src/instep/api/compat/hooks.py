"""A web hook tried before it is relied on: whether its address may be asked, and what its receiver says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from instep.api.compat.envelope import Refusal
from instep.control.identity import Identity
from instep.egress.guard import Guard
from instep.egress.http import place
from instep.errors import ConnectError
from instep.notify.channel import NotDelivered
from instep.notify.hooks import HookChannel, HookConfig, trial


@dataclass(frozen=True)
class Tried:
    """`status` is the receiver's answer, 0 if there was none."""

    succeed: bool
    status: int
    message: str


def check_url(guard: Guard, url: str) -> None:
    """Refusal (400) for what is not https; http is for hosts that the server's own settings list."""
    to = place(url)
    if to.scheme == "http" and not _listed(guard, to.host, to.port):
        hint = "for a receiver in your own network list it: `egress: {allow: [ADDRESS]}`"
        raise Refusal(400, "The url of a webhook must be https.", hint=hint)


def _listed(guard: Guard, host: str, port: int) -> bool:
    try:
        return guard.target(host, port).trusted
    except ConnectError:
        return False


def tried(guard: Guard, url: str, secret: str, event: str) -> Tried:
    """Sends a test at once, past the outbox."""
    channel = HookChannel(HookConfig(url, secret), guard, lambda name: Identity())
    try:
        status = channel.post(trial(event, datetime.now(UTC)))
    except ConnectError as error:
        return Tried(False, error.code if isinstance(error, NotDelivered) else 0, error.message)
    return Tried(True, status, f"The receiver answered {status}.")
