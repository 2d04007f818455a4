"""The compatible API as an application of its own, to be mounted at `/v1`: its errors look different from ours."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from instep.errors import InstepError
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
from instep.server.fivetran_api.http.ports import Allowance, Ports
from instep.server.fivetran_api.http.roles import NEEDS
from instep.server.fivetran_api.http.route import document_of
from instep.server.responses import described_once

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
    """`/connectors/x/` as `/connections/x`; also below groups, but not the lists about connectors of the metadata."""
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
        app.router.routes.extend(room.router.routes)  # as they are, not built anew at the first request
    check_matrix(app)
    for kind in (Refusal, InstepError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer)
    app.middleware("http")(_counted)
    app.add_middleware(Paths)
    return app


def check_matrix(app: FastAPI) -> None:
    """Raise ValueError unless exactly the routes of the matrix are there, and the description."""
    routes = [route for route in app.router.routes if isinstance(route, APIRoute)]
    found = {f"{method} {route.path}" for route in routes for method in route.methods or ()} - {"GET /openapi.json"}
    if found != NEEDS.keys():
        raise ValueError(f"routes and matrix of {_TITLE} differ: {sorted(found ^ NEEDS.keys())}")


def _description(request: Request) -> Response:
    return JSONResponse(request.app.openapi())


def _answer(request: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal | InstepError | HTTPException):
        _log.error("request %s failed", request.scope.get("request_id"), exc_info=error)
    return refused(request, error)


async def _counted(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
    """Tell what is left of the key's requests."""
    response = await go_on(request)
    left: Allowance | None = getattr(request.state, "allowance", None)
    if left is not None:
        response.headers["X-Rate-Limit"] = str(left.limit)
        response.headers["X-Rate-Limit-Remaining"] = str(left.remaining)
    return response
