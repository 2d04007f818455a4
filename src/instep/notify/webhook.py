"""Messages as signed events: a CloudEvents document, signed after Standard Webhooks."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from instep.egress.guard import EgressGuard
from instep.errors import ProjectError
from instep.notify.channel import post_json
from instep.notify.lines import MessageLine
from instep.notify.message import Message
from instep.project.sections.channels import WebhookChannelSection

MAX_BYTES = 18_000
_PREFIX = "whsec_"
_SHORTEST, _LONGEST = 24, 64


class WebhookChannel:
    """Secrets are `whsec_` and 24 to 64 bytes in base64. `clock` answers seconds since 1970."""

    def __init__(
        self, config: WebhookChannelSection, guard: EgressGuard, clock: Callable[[], float] = time.time
    ) -> None:
        self._config, self._guard, self._clock = config, guard, clock
        self._keys = [signing_key(secret) for secret in (config.secret, config.former_secret) if secret]

    def payload(self, message: Message) -> str:
        return json.dumps(payload(message), ensure_ascii=False)

    def send(self, message: Message) -> int:
        body = self.payload(message).encode("utf-8", "backslashreplace")
        at = int(self._clock())
        signatures = " ".join(signature(key, message.id, at, body) for key in self._keys)
        return post_json(
            self._guard,
            self._config.url,
            body,
            timeout=self._config.timeout,
            ca=self._config.ca,
            Content_Type="application/cloudevents+json",
            webhook_id=message.id,
            webhook_timestamp=str(at),
            webhook_signature=signatures,
        )


def signing_key(secret: str) -> bytes:
    """Return the bytes of a secret; ProjectError, without the secret, if it is none."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not _SHORTEST <= len(key) <= _LONGEST:
        hint = "make one: python -c \"import base64, secrets; print('whsec_' + "
        raise ProjectError(
            "the signing secret is not `whsec_` and 24 to 64 bytes in base64",
            hint=f'{hint}base64.b64encode(secrets.token_bytes(32)).decode())"',
        )
    return key


def signature(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """Return `v1,` and the HMAC-SHA256 of id, timestamp and body."""
    signed = b".".join((id.encode(), str(timestamp).encode(), body))
    return f"v1,{base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()}"


def payload(message: Message) -> dict[str, Any]:
    """Return the payload: one notice is an event of its own type; several are one `org.instep.notices.v1`, with
    those that fit and the range of event numbers in which all of them are found."""
    line = message.lines[0] if len(message.lines) == 1 else None
    document = {
        "specversion": "1.0",
        "id": message.id,
        "source": _source(message),
        "type": f"org.instep.{line.type if line else 'notices'}.v1",
        "time": message.at.isoformat(),
        "datacontenttype": "application/json",
    }
    if line and (subject := line.change or line.run or line.place):
        document["subject"] = subject
    return {**document, "data": _line(line) if line else _many_lines(message)}


def _source(message: Message) -> str:
    names = message.connections
    return f"/connections/{quote(names[0], safe='')}" if len(names) == 1 else "/connections"


def _many_lines(message: Message) -> dict[str, Any]:
    numbers = sorted(number for line in message.lines for number in line.numbers)
    notices: list[dict[str, Any]] = []
    size = 0
    for line in message.first(len(message.lines))[0]:
        notice = _line(line)
        size += len(json.dumps(notice, ensure_ascii=False).encode("utf-8", "backslashreplace")) + 2
        if size > MAX_BYTES:
            break
        notices.append(notice)
    return {
        "title": message.title,
        "severity": message.severity,
        "count": len(message.lines),
        "first_event": numbers[0],
        "last_event": numbers[-1],
        "notices": notices,
        "more": len(message.lines) - len(notices),
    }


def _line(line: MessageLine) -> dict[str, Any]:
    """Return all that is known, cut: names may be as long as a source lets them."""
    fields = {k: v for k, v in asdict(line).items() if v not in ("", (), 0)}
    cut = {k: v[: 1_000 if k == "why" else 250] if isinstance(v, str) else v for k, v in fields.items()}
    return {**cut, "at": line.at.isoformat(), "numbers": list(line.numbers)}
