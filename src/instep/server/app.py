"""The server's application: its routes, behind the guard, each with the role that the matrix gives it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from instep.errors import InstepError
from instep.server import immediate_routes, operation_routes, problems, query_routes
from instep.server.access import NEEDS, OPEN, PREFIX, PROBLEMS, described_once
from instep.server.context import OpenProject, ServerContext
from instep.server.fivetran_api.app import PATH, compatible
from instep.server.fivetran_api.http.envelope import refused_as
from instep.server.guard import RequestGuard, as_problem
from instep.server.models import ProblemOut
from instep.server.queue import StoredQueue
from instep.server.rates import Listeners, Rates
from instep.server.requests import records_in, texts_of
from instep.server.routes import connections, events, health, jobs
from instep.server.web.app import add_pages, is_page
from instep.server.web.rendering import not_found
from instep.server.web.visit import show

_WAYS: dict[str, dict[str, str]] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key's secret: instep_sk_..."},
    "basic": {"type": "http", "scheme": "basic", "description": "An API key's id and its secret."},
}


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = document["components"]["schemas"]
    for own in ("HTTPValidationError", "ValidationError"):  # the framework's errors are never answered
        schemas.pop(own, None)
    _describe_fields(app, schemas)
    schemas["ProblemOut"] = ProblemOut.model_json_schema()
    document["components"]["securitySchemes"] = _WAYS
    for route, operation in _operations(document):
        if role := NEEDS.get(route):
            operation["security"] = [{name: []} for name in _WAYS]
            operation["x-role"] = role
            operation["responses"] = dict(_shortened(operation["responses"]))
    document["components"]["responses"] = {f"Problem{code}": response for code, response in PROBLEMS.items()}
    return document


def _describe_fields(app: FastAPI, schemas: dict[str, Any]) -> None:
    """Add the text beneath each field of an answered record to its schema; pydantic takes that of the class alone."""
    records = set[type[Any]]()
    for route in app.routes:
        if isinstance(route, APIRoute):
            more = (response.get("model") for response in route.responses.values())
            for hint in (route.response_model, *more):
                records_in(hint, records)
    for record in records:
        properties = schemas.get(record.__name__, {}).get("properties", {})
        for name, text in texts_of(record).items():
            if name in properties:
                properties[name].setdefault("description", text)


def _shortened(responses: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield responses with the common problems as references, so that OpenAPI has them once."""
    for code, response in responses.items():
        same = response == PROBLEMS.get(int(code))
        yield code, {"$ref": f"#/components/responses/Problem{code}"} if same else response


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path.removeprefix(PREFIX)}", operation


_ROOMS = (health, connections, jobs, events, operation_routes, immediate_routes, query_routes)
ROUTES = (*(room.routes for room in _ROOMS), health.metrics_routes)
_TITLE = "instep API"
_ABOUT = "Connections, schema changes and runs of this server."


def create_app(
    opened: OpenProject,
    *,
    rates: Rates | None = None,
    listeners: Listeners | None = None,
    secure: bool = False,
    poll: float = 1.0,
    stream: float = 900.0,
) -> FastAPI:
    """Return the ASGI application over an open server: its own routes, and the compatible API at its path. `secure`:
    clients come by TLS. Raises ValueError for a route that the matrix does not have."""
    rates = rates or Rates()
    app = FastAPI(
        title=_TITLE,
        version="1",
        description=_ABOUT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.server = ServerContext(
        opened,
        StoredQueue(opened),
        rates,
        listeners or Listeners(),
        poll,
        stream,
        version("instep"),
    )
    opened.store.events.last_number()  # opens the store before the first request
    check_matrix()
    for routes in ROUTES:  # as they are: including them builds each again for every application, at its first request
        app.router.routes.extend(routes.routes)
    health.add_alias(app)
    app.mount(PATH, compatible(opened, rates))
    add_pages(app)
    app.openapi = described_once(app, lambda: _document(app))  # type: ignore[method-assign]
    _handle(app)
    app.add_middleware(RequestGuard, render=_refused, secure=secure, slashes=(f"{PATH}/", "/static/"), is_page=is_page)
    return app


def _refused(path: str, problem: problems.ApiProblem) -> Response:
    """Return the guard's refusal in the words of the routes below a path."""
    if path == PATH or path.startswith(f"{PATH}/"):
        return refused_as(problem.status, problem.detail, problem.hint, problem.headers)
    return as_problem(path, problem)


def _handle(app: FastAPI) -> None:
    app.add_exception_handler(problems.ApiProblem, problems.on_problem)
    app.add_exception_handler(InstepError, problems.on_error)
    app.add_exception_handler(RequestValidationError, problems.on_invalid)
    app.add_exception_handler(HTTPException, _on_status)


async def _on_status(request: Request, error: Any) -> Response:
    """Return the answer for an unknown address or method."""
    if not is_page(request.url.path):
        return await problems.on_status(request, error)
    return await show(request, "problem.html", error.status_code, problem=not_found(request.url.path), visit=None)


def check_matrix() -> None:
    """Check that every route is in the matrix or open, once, and nothing else is."""
    names = list(route_names())
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"routes with two meanings: {twice}")
    routes, known = set(names), {*NEEDS, *OPEN}
    if routes != known:
        raise ValueError(f"routes and matrix differ: {sorted(routes ^ known)}")


def route_names() -> Iterator[str]:
    """Yield `METHOD /path` of every route, as the matrix and OPEN have them."""
    for route in (one for routes in ROUTES for one in routes.routes if isinstance(one, APIRoute)):
        for method in sorted(route.methods or ()):
            whole = f"{method} {route.path}"
            yield whole if whole in OPEN else f"{method} {route.path.removeprefix(PREFIX)}"
