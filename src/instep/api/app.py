"""The server's application: its routes, behind the guard, each with the role that the matrix gives it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from instep.api import operations, problems
from instep.api.compat.envelope import refused_as
from instep.api.compat.mount import PATH, compatible
from instep.api.description import describe
from instep.api.guard import Guard, as_problem
from instep.api.matrix import NEEDS, OPEN, PREFIX
from instep.api.queue import StoredQueue
from instep.api.rates import Listeners, Rates
from instep.api.routes import (
    changes,
    channels,
    connections,
    detectors,
    events,
    health,
    keys,
    metrics,
    objects,
    policies,
    quarantine,
    queue,
    rollouts,
    runs,
    schemas,
    selections,
    settings,
    standing,
    work,
)
from instep.api.server import Opened, Server
from instep.errors import InstepError

_ROOMS = (
    health, connections, detectors, settings, work, changes, runs, schemas, policies, objects, channels, events,
    quarantine, keys, metrics, queue, standing, rollouts, selections, operations,
)  # fmt: skip
ROUTES = tuple(room.routes for room in _ROOMS)
_TITLE = "instep API"
_ABOUT = "Connections, schema changes and runs of this server."


def create_app(
    opened: Opened,
    *,
    rates: Rates | None = None,
    listeners: Listeners | None = None,
    secure: bool = False,
    poll: float = 1.0,
    stream: float = 900.0,
) -> FastAPI:
    """The ASGI application over an open server: its own routes, and the compatible API at its path. `secure`:
    clients come by TLS. Raises ValueError for a route that the matrix does not have."""
    rates = rates or Rates()
    app = FastAPI(
        title=_TITLE, version="1", description=_ABOUT, openapi_url=None, docs_url=None, redoc_url=None,
        redirect_slashes=False,
    )  # fmt: skip
    app.state.server = Server(
        opened, StoredQueue(opened), rates, listeners or Listeners(), poll, stream,
        version("instep"),
    )  # fmt: skip
    opened.store.events.last_number()  # opens the store before the first request
    check_matrix()
    for routes in ROUTES:  # as they are: including them builds each anew for every application, at its first request
        app.router.routes.extend(routes.routes)
    metrics.add_alias(app)
    app.mount(PATH, compatible(opened, rates))
    app.openapi = describe(app)  # type: ignore[method-assign]
    _handle(app)
    app.add_middleware(Guard, render=_refused, secure=secure, slashes=(f"{PATH}/",))
    return app


def _refused(path: str, problem: problems.Problem) -> Response:
    """What the guard refuses, in the words of the routes below a path."""
    if path == PATH or path.startswith(f"{PATH}/"):
        return refused_as(problem.status, problem.detail, problem.hint, problem.headers)
    return as_problem(path, problem)


def _handle(app: FastAPI) -> None:
    app.add_exception_handler(problems.Problem, problems.on_problem)
    app.add_exception_handler(InstepError, problems.on_error)
    app.add_exception_handler(RequestValidationError, problems.on_invalid)
    app.add_exception_handler(HTTPException, problems.on_status)


def check_matrix() -> None:
    """Every route is in the matrix or open, and nothing else is."""
    found, known = set(route_names()), {*NEEDS, *OPEN}
    if found != known:
        raise ValueError(f"routes and matrix differ: {sorted(found ^ known)}")


def route_names() -> Iterator[str]:
    """`METHOD /path` of every route, as the matrix and OPEN have them."""
    for route in (one for routes in ROUTES for one in routes.routes if isinstance(one, APIRoute)):
        for method in sorted(route.methods or ()):
            whole = f"{method} {route.path}"
            yield whole if whole in OPEN else f"{method} {route.path.removeprefix(PREFIX)}"
