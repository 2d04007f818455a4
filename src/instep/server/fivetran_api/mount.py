"""Who calls, by the API keys of the server, and how often a key may."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import FastAPI

from instep import model
from instep.control.resources.api_keys import authenticate
from instep.control.resources.resources import Resources
from instep.egress.guard import EgressGuard
from instep.errors import Conflict
from instep.model import JobKind
from instep.operations.registry import policy_of
from instep.project.project import Project
from instep.server.fivetran_api.app import create_compatible
from instep.server.fivetran_api.http.ports import WAIT, Allowance, ApiCaller, ApiJob, Ports
from instep.server.fivetran_api.objects import ServedObjects
from instep.server.rates import Rates
from instep.store.store import Store
from instep.store.work.jobs import CONNECTION_TEST, REQUESTED, WAITED_FOR


@dataclass(frozen=True)
class StoredKeys:
    """Keys as the store has them."""

    store: Store

    def caller(self, key: str | None, secret: str) -> ApiCaller | None:
        found = authenticate(self.store, secret, key)
        if found is None:
            return None
        return ApiCaller(f"{found.name} ({found.id})", found.role, frozenset(found.groups), found.id)


@dataclass(frozen=True)
class SharedRates:
    """The windows of the server's own API: a key has one allowance for both."""

    rates: Rates

    def take(self, key: str) -> Allowance:
        allowed, left = self.rates.take(key)
        return Allowance(left.limit, left.remaining, 0 if allowed else left.reset)

    def fail(self, address: str) -> int:
        allowed, left = self.rates.take_failure(address)
        return 0 if allowed else left.reset


POLL = 0.05
WAITING = 20
"""How many requests may wait for jobs at a time: others are told to come again, so that the rest of the server is
never out of threads."""


@dataclass(frozen=True)
class StoredJobs:
    store: Store
    project: Callable[[str], Project]
    _seats: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(WAITING))

    def enqueue(
        self,
        connection: str,
        kind: JobKind,
        options: Mapping[str, Any],
        *,
        key: str = "",
        urgent: bool = False,
        who: str,
    ) -> ApiJob:
        """Some lanes are for what somebody waits for: rows do not move in them."""
        looks = policy_of(kind).reads_catalog
        priority = WAITED_FOR if urgent and (looks or kind == CONNECTION_TEST) else REQUESTED
        source = self.project(connection).source_of(connection) if looks else ""
        job, _ = self.store.jobs.enqueue(
            connection, kind, key=key, options=options, priority=priority, why="asked for", who=who, source=source
        )
        return shown(job)

    def wait(self, job: str, seconds: float) -> ApiJob:
        if not self._seats.acquire(blocking=False):
            return shown(self.store.jobs.get(job))
        try:
            end = time.monotonic() + seconds
            while not (found := self.store.jobs.get(job)).over and time.monotonic() < end:
                time.sleep(POLL)
            return shown(found)
        finally:
            self._seats.release()

    def cancel(self, job: str, who: str) -> None:
        with suppress(Conflict):  # it has ended meanwhile
            self.store.jobs.cancel(job, who)

    def unfinished(self, connections: Sequence[str]) -> Mapping[str, Sequence[ApiJob]]:
        found: dict[str, list[ApiJob]] = {name: [] for name in connections}
        for job in self.store.jobs.unfinished(connections):
            found[job.connection].append(shown(job))
        return found

    def has_worker(self) -> bool:
        return bool(self.store.workers.live())


def shown(job: model.Job) -> ApiJob:
    """The store counts the attempts that have begun; here a job that waits is at its next one."""
    attempt = job.attempt + 1 if job.status == "queued" else job.attempt
    return ApiJob(job.id, job.connection, job.kind, job.status, job.error, job.due, attempt, job.result, job.who)


PATH = "/v1"


class OpenServer(Protocol):
    """An open server, as `bootstrap` gives it."""

    @property
    def project(self) -> Project: ...

    @property
    def store(self) -> Store: ...

    @property
    def objects(self) -> Resources: ...


def ports_of(opened: OpenServer, rates: Rates, wait: float = WAIT) -> Ports:
    """`wait`: seconds that a request waits for a job."""
    store = opened.store

    def project(name: str) -> Project:
        return opened.project.of(name)

    return Ports(
        store,
        project,
        ServedObjects(lambda: opened.objects),
        StoredJobs(store, project),
        StoredKeys(store),
        lambda: EgressGuard(opened.project.model.egress.allow),
        SharedRates(rates),
        wait,
    )


def compatible(opened: OpenServer, rates: Rates) -> FastAPI:
    """Return the application to mount at PATH."""
    return create_compatible(ports_of(opened, rates), PATH)
