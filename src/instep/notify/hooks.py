"""Webhooks of the compatible API: which events each gets, in the form and with the signature that its receivers expect.

A hook is a document that the API keeps. It is a channel of the outbox under a name of its own, and each event that it
has asked for is one delivery.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from instep import events
from instep.egress.guard import EgressGuard
from instep.errors import InstepError
from instep.events import Event
from instep.notify.channel import post_json
from instep.notify.message import Message
from instep.store.history.outbox import Notice
from instep.store.history.recorded_event import LoggedEvent
from instep.store.server.resources import StoredObject
from instep.store.store import Store

PREFIX = "v1:"
"""The prefix of a hook's name that makes the name of its channel, which no other channel can have."""
EVENTS = (
    "sync_start", "sync_end", "connection_successful", "connection_failure", "create_connector", "pause_connector",
    "resume_connector", "edit_connector", "delete_connector", "force_update_connector", "resync_connector",
    "resync_table", "dbt_run_start", "dbt_run_succeeded", "dbt_run_failed", "transformation_start",
    "transformation_succeeded", "transformation_failed", "status",
)  # fmt: skip
OURS = ("schema_change_detected", "schema_change_review", "schema_change_applied")
"""Events of ours, sent only to those that ask for them by name."""
SIGNATURE = "X_Fivetran_Signature_256"
_SYNCS = ("sync", "backfill")
_STATUSES = {"done": "SUCCESSFUL", "blocked": "FAILURE_WITH_TASK"}
_AT_ONCE = 1000


class ConnectionNames(Protocol):
    """A connection in the words of the API; "" for what is no longer known."""

    @property
    def service(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    @property
    def group(self) -> str: ...


def words(event: Event) -> tuple[str, ...]:
    """Return the words by which webhooks subscribe to an event, the most specific first; () for an event without a
    word."""
    match event:
        case events.RunStarted() if event.kind in _SYNCS:
            return ("sync_start",)
        case events.RunEnded() if event.kind in _SYNCS:
            return "sync_end", "status"
        case events.Paused(table=""):
            return ("pause_connector",)
        case events.Resumed(table=""):
            return ("resume_connector",)
        case events.ConnectionTested():
            return ("connection_failure" if event.error else "connection_successful",)
        case events.ResyncRequested():
            return ("resync_table" if event.tables else "resync_connector",)
    word = _WORDS.get(type(event))
    return (word,) if word else ()


_WORDS: Mapping[type[Event], str] = {
    events.ConnectionCreated: "create_connector",
    events.ConnectionEdited: "edit_connector",
    events.ConnectionDeleted: "delete_connector",
    events.SyncRequested: "force_update_connector",
    events.ChangeDetected: "schema_change_detected",
    events.ReviewNeeded: "schema_change_review",
    events.RenameSuspected: "schema_change_review",
    events.ChangeReopened: "schema_change_review",
    events.ChangeApplied: "schema_change_applied",
}


def facts(event: Event) -> dict[str, Any]:
    """Return the `data` of an event."""
    match event:
        case events.RunEnded():
            return {
                "status": _STATUSES.get(event.status, "FAILURE"),
                **({"reason": event.error} if event.error else {}),
            }
        case events.ConnectionTested(error=error) if error:
            return {"status": "FAILURE", "reason": error}
        case events.RunStarted() | events.ConnectionTested():
            return {}
        case events.Paused():
            return {"reason": event.reason}
        case events.ConnectionDeleted():
            return {"who": event.who}
    return {name: value for name, value in event.data().items() if name != "connection"}


@dataclass(frozen=True)
class Hooks:
    """The routing of events to hooks: asked in the transaction of each event."""

    store: Store
    about: Callable[[str], ConnectionNames]
    _found: list[tuple[datetime, list[StoredObject]]] = field(default_factory=list, repr=False, compare=False)
    """The hooks as they were for the last events that were added together: these have one time, the same object."""

    def __call__(self, event: Event, at: datetime) -> list[Notice]:
        return list(self._notices(event, at)) if words(event) else []

    def _notices(self, event: Event, at: datetime) -> Iterator[Notice]:
        for hook in self._hooks(at):
            spec = hook.spec
            word = next((word for word in words(event) if word in spec["events"]), None)
            if word and spec["active"] and self._covers(spec, event):
                # Each in a batch of its own, in the order of events: a receiver reads one event a request.
                batch = f"{time.time_ns():020}-{secrets.token_hex(4)}"
                yield Notice(f"{PREFIX}{hook.name}", batch, word, "info", False, at)

    def _hooks(self, at: datetime) -> list[StoredObject]:
        if not self._found or self._found[0][0] is not at:
            self._found[:] = [(at, self.store.objects.page("webhook", limit=_AT_ONCE))]
        return self._found[0][1]

    def _covers(self, spec: Mapping[str, Any], event: Event) -> bool:
        group = spec.get("group_id")
        return not group or group == _about(event, self.about).group


@dataclass(frozen=True)
class _Known:
    service: str
    namespace: str
    group: str


def _about(event: Event, about: Callable[[str], ConnectionNames]) -> ConnectionNames:
    """Return the connection that a message is about; a deleted one is known by its last event alone."""
    if isinstance(event, events.ConnectionDeleted):
        return _Known(event.service, event.namespace, event.destination)
    return about(event.connection)


@dataclass(frozen=True)
class HookConfig:
    """A webhook; without a `secret` nothing is signed."""

    url: str = field(repr=False)
    secret: str = field(default="", repr=False)
    timeout: float = 10.0


class HookChannel:
    def __init__(self, config: HookConfig, guard: EgressGuard, about: Callable[[str], ConnectionNames]) -> None:
        self._config, self._guard, self._about = config, guard, about

    def payload(self, message: Message) -> str:
        return _text(self._made(message))

    def send(self, message: Message) -> int:
        return self.post(self._made(message))

    def _made(self, message: Message) -> dict[str, Any]:
        [notified] = message.notified
        return payload(notified.notice, notified.event, self._about)

    def post(self, document: Mapping[str, Any]) -> int:
        """Answer the receiver's code; NotDelivered, or ConnectError if nobody answers."""
        body = _text(document).encode("utf-8", "backslashreplace")
        signed = {SIGNATURE: signature(self._config.secret, body)} if self._config.secret else {}
        return post_json(self._guard, self._config.url, body, timeout=self._config.timeout, **signed)


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False)


def signature(secret: str, body: bytes) -> str:
    """Return the HMAC-SHA256 in upper-case hexadecimal: some receivers compare the text as it is."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest().upper()


def payload(word: str, logged: LoggedEvent, about: Callable[[str], ConnectionNames]) -> dict[str, Any]:
    try:
        event = logged.event
    except InstepError:  # of a newer version
        return _document(word, logged.at, logged.connection, about(logged.connection), {})
    run = getattr(event, "run", "")
    return _document(word, logged.at, logged.connection, _about(event, about), facts(event), run)


def trial(word: str, at: datetime) -> dict[str, Any]:
    """Return the test message of a hook."""
    return _document(word, at, "_connection", _Known("_service", "_schema", "_group"), {}, "_sync")


def _document(
    word: str, at: datetime, connection: str, names: ConnectionNames, data: Mapping[str, Any], run: str = ""
) -> dict[str, Any]:
    created = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "event": word,
        "created": created,
        "connector_type": names.service,
        "connector_id": connection,
        "connector_name": names.namespace,
        "sync_id": run or None,
        "destination_group_id": names.group,
        "data": dict(data),
    }
