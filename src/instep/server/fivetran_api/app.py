"""The compatible API as an application of its own, to be mounted at `/v1`: its errors look different from ours.

Who calls, by the API keys of the server, and how often a key may.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from instep import model
from instep.control.resources.api_keys import authenticate
from instep.egress.guard import EgressGuard
from instep.errors import Conflict, InstepError
from instep.model import JobKind
from instep.operations.registry import policy_of
from instep.project.project import Project
from instep.server.access import described_once
from instep.server.context import OpenProject
from instep.server.fivetran_api import (
    connection_state,
    connections,
    destinations,
    empty_lists,
    groups,
    metadata,
    schemas,
    syncs,
    users,
    webhooks,
)
from instep.server.fivetran_api.http.envelope import Refusal, new_id, refused
from instep.server.fivetran_api.http.ports import WAIT, Allowance, ApiCaller, ApiJob, Ports
from instep.server.fivetran_api.http.route import NEEDS, document_of
from instep.server.fivetran_api.objects import ServedObjects
from instep.server.rates import Rates
from instep.store.store import Store
from instep.store.work.jobs import CONNECTION_TEST, REQUESTED, WAITED_FOR

_TITLE = "instep compatible API"
_log = logging.getLogger(__name__)


class Paths:
    """Takes the older names of connections for the present ones, and paths with a slash at their end; what is matched
    is not decoded yet, so that a name may hold a slash."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            root = scope.get("root_path", "")
            raw = scope.get("raw_path") or scope["path"].encode()
            rest = raw.decode("latin-1").partition("?")[0].removeprefix(root)
            scope = {**scope, "path": root + plain(rest), "request_id": new_id()}
        await self._app(scope, receive, send)


def plain(path: str) -> str:
    """Return `/connectors/x/` as `/connections/x`; also below groups, but not the metadata's lists about connectors."""
    parts = [part for part in path.split("/") if part]
    for place in (0, 2):
        if len(parts) > place and parts[place] == "connectors" and parts[0] in ("connectors", "groups"):
            parts[place] = "connections"
    return "/" + "/".join(parts)


def create_compatible(ports: Ports, prefix: str = "") -> FastAPI:
    """Return the application over these ports, to be mounted at `prefix`."""
    app = FastAPI(title=_TITLE, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.ports = ports
    app.openapi = described_once(app, lambda: document_of(app, prefix))  # type: ignore[method-assign]
    app.add_api_route("/openapi.json", _description, include_in_schema=False)
    for room in (
        syncs,
        schemas,
        connection_state,
        connections,
        groups,
        destinations,
        users,
        webhooks,
        metadata,
        empty_lists,
    ):
        app.router.routes.extend(room.router.routes)  # as they are, not built again at the first request
    check_matrix(app)
    for kind in (Refusal, InstepError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer)
    app.middleware("http")(_counted)
    app.add_middleware(Paths)
    return app


def check_matrix(app: FastAPI) -> None:
    """Raise ValueError unless exactly the routes of the matrix are there, and the description."""
    routes = [route for route in app.router.routes if isinstance(route, APIRoute)]
    operations = {f"{method} {route.path}" for route in routes for method in route.methods or ()} - {
        "GET /openapi.json"
    }
    if operations != NEEDS.keys():
        raise ValueError(f"routes and matrix of {_TITLE} differ: {sorted(operations ^ NEEDS.keys())}")


def _description(request: Request) -> Response:
    return JSONResponse(request.app.openapi())


def _answer(request: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal | InstepError | HTTPException):
        _log.error("request %s failed", request.scope.get("request_id"), exc_info=error)
    return refused(request, error)


async def _counted(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
    """Add the key's remaining requests to the response."""
    response = await go_on(request)
    left: Allowance | None = getattr(request.state, "allowance", None)
    if left is not None:
        response.headers["X-Rate-Limit"] = str(left.limit)
        response.headers["X-Rate-Limit-Remaining"] = str(left.remaining)
    return response


@dataclass(frozen=True)
class StoredKeys:
    """Keys as the store has them."""

    store: Store

    def caller(self, key: str | None, secret: str) -> ApiCaller | None:
        caller = authenticate(self.store, secret, key)
        if caller is None:
            return None
        return ApiCaller(caller.who, caller.role, frozenset(caller.groups), caller.id)


@dataclass(frozen=True)
class SharedRates:
    """The windows of the server's own API: a key has one allowance for both."""

    rates: Rates

    def count_request(self, key: str) -> Allowance:
        allowed, left = self.rates.count_request(key)
        return Allowance(left.limit, left.remaining, 0 if allowed else left.reset)

    def fail(self, address: str) -> int:
        allowed, left = self.rates.take_failure(address)
        return 0 if allowed else left.reset


POLL = 0.05
WAITING = 20
"""The most requests that may wait for jobs at a time: others are told to come again, so that the rest of the server is
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
        """Queue a job. Some lanes are for jobs that somebody waits for: no rows move in them."""
        looks = policy_of(kind).reads_catalog
        priority = WAITED_FOR if urgent and (looks or kind == CONNECTION_TEST) else REQUESTED
        source = self.project(connection).source_of(connection) if looks else ""
        job, _ = self.store.jobs.enqueue(
            connection, kind, key=key, options=options, priority=priority, why="requested", who=who, source=source
        )
        return shown(job)

    def wait(self, job: str, seconds: float) -> ApiJob:
        if not self._seats.acquire(blocking=False):
            return shown(self.store.jobs.get(job))
        try:
            end = time.monotonic() + seconds
            while not (row := self.store.jobs.get(job)).over and time.monotonic() < end:
                time.sleep(POLL)
            return shown(row)
        finally:
            self._seats.release()

    def cancel(self, job: str, who: str) -> None:
        with suppress(Conflict):  # it has ended meanwhile
            self.store.jobs.cancel(job, who)

    def unfinished(self, connections: Sequence[str]) -> Mapping[str, Sequence[ApiJob]]:
        api_jobs: dict[str, list[ApiJob]] = {name: [] for name in connections}
        for job in self.store.jobs.unfinished(connections):
            api_jobs[job.connection].append(shown(job))
        return api_jobs

    def has_worker(self) -> bool:
        return bool(self.store.workers.live())


def shown(job: model.Job) -> ApiJob:
    """Return the job for the API. The store counts attempts that have begun; here a waiting job is at its next one."""
    attempt = job.attempt + 1 if job.status == "queued" else job.attempt
    return ApiJob(job.id, job.connection, job.kind, job.status, job.error, job.due, attempt, job.result, job.who)


PATH = "/v1"


def ports_of(opened: OpenProject, rates: Rates, wait: float = WAIT) -> Ports:
    """Return the API's ports; `wait` is the seconds that a request waits for a job."""
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


def compatible(opened: OpenProject, rates: Rates) -> FastAPI:
    """Return the application to mount at PATH."""
    return create_compatible(ports_of(opened, rates), PATH)
