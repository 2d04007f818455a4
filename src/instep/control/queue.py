"""Queue jobs for a connection."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from instep.control.detector import RequestedDetection
from instep.events import SyncRequested
from instep.model import JobKind
from instep.operations.registry import policy_of
from instep.store.store import Store
from instep.store.work.jobs import REQUESTED, requested_by


def ask(
    store: Store,
    connection: str,
    kind: JobKind,
    who: str,
    options: Mapping[str, Any] | None = None,
    *,
    priority: int = REQUESTED,
    attempts: int | None = None,
) -> RequestedDetection:
    """Work for a connection as soon as a worker is free; the same that waits already is answered instead, of some kinds
    only to who has asked for it. To be called in a transaction, as what asks for it is written with it."""
    key = request_key(kind, who, options)
    waits = store.jobs.waiting(connection, kind, key)
    job, new = store.jobs.enqueue(
        connection, kind, key=key, options=options, priority=priority, attempts=attempts, why="requested", who=who
    )
    if kind == "sync" and not (waits and requested_by(waits.who, who)):
        store.events.add(SyncRequested(connection, who))
    return RequestedDetection(job, new)


def request_key(kind: JobKind, who: str, options: Mapping[str, Any] | None) -> str:
    """Return what tells work of a kind from other work, and where two people are needed each one's from the other's."""
    return key_of({"options": options, "who": who} if policy_of(kind).two_person else options)


def key_of(options: Mapping[str, Any] | None) -> str:
    """Work with other options is other work."""
    if not options:
        return ""
    return hashlib.sha256(json.dumps(dict(options), sort_keys=True, default=str).encode()).hexdigest()[:16]
