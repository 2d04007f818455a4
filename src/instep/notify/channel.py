"""The interface of a channel: it takes a message, or says why it did not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol

from instep.egress.guard import EgressGuard
from instep.errors import ConnectError
from instep.notify.message import Message
from instep.project.sections.channels import PostChannelSection

if TYPE_CHECKING:
    from instep.egress.http import HttpAnswer


class Channel(Protocol):
    def payload(self, message: Message) -> str:
        """Return the body that is sent, without signatures and logins."""

    def send(self, message: Message) -> int:
        """Deliver the message; return the receiver's code. Raises NotDelivered, or ConnectError if nobody answers."""


class NotDelivered(ConnectError):
    """The receiver has refused the message."""

    def __init__(self, why: str, *, code: int, hint: str = "", after: float = 0.0, gone: bool = False) -> None:
        """Set when to retry: not before `after` seconds, never if `gone`."""
        super().__init__(why, hint=hint or "see `instep notify log`")
        self.code, self.after, self.gone = code, after, gone


class PostChannel:
    """Takes a message as one document, which `payload` makes of it."""

    def __init__(
        self, config: PostChannelSection, guard: EgressGuard, payload: Callable[[Message], Mapping[str, Any]]
    ) -> None:
        self._config, self._guard, self._payload = config, guard, payload

    def payload(self, message: Message) -> str:
        return json.dumps(self._payload(message))

    def send(self, message: Message) -> int:
        body = self.payload(message).encode()
        return post_json(self._guard, self._config.url, body, timeout=self._config.timeout)


def post_json(guard: EgressGuard, url: str, body: bytes, *, timeout: float, ca: str = "", **headers: str) -> int:
    """Post a document; the receiver must answer 2xx. Its answer is not repeated: it may hold anything."""
    from instep.egress.http import post

    named = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    answer = post(guard, url, body, named, timeout=timeout, ca=ca)
    if 200 <= answer.status < 300:
        return answer.status
    if 300 <= answer.status < 400:
        raise NotDelivered(
            f"the receiver answered {answer.status}: it redirects elsewhere, and redirects are not followed",
            code=answer.status,
            hint="write the address that it redirects to",
        )
    gone = answer.status == 410
    why = f"the receiver answered {answer.status}{' (gone)' if gone else ''}"
    raise NotDelivered(why, code=answer.status, after=_after(answer), gone=gone)


def _after(answer: HttpAnswer) -> float:
    """Return the seconds of Retry-After, which is a number or a date."""
    header = answer.headers.get("retry-after", "").strip()
    if header.isascii() and header.isdigit():
        return float(header[:9])
    try:
        then = parsedate_to_datetime(header)
        now = parsedate_to_datetime(answer.headers["date"])
        return max(0.0, (then - now).total_seconds())
    except (ValueError, TypeError, KeyError):
        return 0.0
