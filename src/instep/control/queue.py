"""Requests to the queue: work for a connection, an answer that is waited for, a stop."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from instep.control.detector import RequestedDetection
from instep.errors import ConnectError, RunInProgress
from instep.events import SyncRequested
from instep.model import Job, JobKind
from instep.operations.registry import policy_of
from instep.store.store import Store
from instep.store.work.jobs import REQUESTED, requested_by

POLL = 0.1


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
        connection, kind, key=key, options=options, priority=priority, attempts=attempts, why="asked for", who=who
    )
    if kind == "sync" and not (waits and requested_by(waits.who, who)):
        store.events.add(SyncRequested(connection, who))
    return RequestedDetection(job, new)


def ask_sync(
    store: Store, connection: str, who: str, options: Mapping[str, Any] | None = None, *, force: bool = False
) -> RequestedDetection:
    """Return a sync; RunInProgress while one runs or is about to. `force`: the one that runs is stopped, and a new one
    comes next."""
    with store.transaction():
        running = store.jobs.running(connection, "sync")
        if running and not force:
            raise RunInProgress(
                f"connection {connection}: a sync is running (job {running.id})",
                hint="wait until it ends, or force a new one",
            )
        if running and not running.stop:
            store.jobs.cancel(running.id, who)
        return ask(store, connection, "sync", who, options)


def request_key(kind: JobKind, who: str, options: Mapping[str, Any] | None) -> str:
    """Return what tells work of a kind from other work, and where two people are needed each one's from the other's."""
    return key_of({"options": options, "who": who} if policy_of(kind).two_person else options)


def key_of(options: Mapping[str, Any] | None) -> str:
    """Work with other options is other work."""
    if not options:
        return ""
    return hashlib.sha256(json.dumps(dict(options), sort_keys=True, default=str).encode()).hexdigest()[:16]


def await_end(store: Store, job_id: str, seconds: float, sleep: Callable[[float], None] = time.sleep) -> Job:
    """Return the job once it is over, or as it is after so many seconds. Raises ConnectError if no worker is there."""
    check_workers(store)
    end = time.monotonic() + seconds
    while not (job := store.jobs.get(job_id)).over and time.monotonic() < end:
        sleep(POLL)
    return job


def check_workers(store: Store) -> None:
    """Raise ConnectError if no worker lives."""
    if not store.workers.live():
        raise ConnectError("no worker is running, so nothing is begun", hint="start one: `instep worker`")
