"""Access to the routes: the caller's API key (a Bearer token, or Basic's password), and the role that each route needs.

A route without a role does not start. All routes declare the problems that they may answer.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Path, Request, Response

from instep.control.resources.api_keys import ROLES, authenticate, may
from instep.model import Job
from instep.operations.registry import immediate_specs, query_specs, spec_of, specs
from instep.operations.spec import Role
from instep.server.context import Caller, ServerContext
from instep.server.invalid_fields import check_parameters
from instep.server.problems import MEDIA_TYPE, ApiProblem
from instep.store.store import Store

PREFIX = "/api/v1"


NEEDS: Mapping[str, Role] = {
    "GET /metrics": "viewer",
    "GET /jobs/{job}": "viewer",
    "GET /events/stream": "viewer",
    **{spec.route: spec.role for spec in specs().values()},
    **{spec.route: spec.role for spec in query_specs().values()},
    **{spec.route: spec.role for spec in immediate_specs().values()},
}
CONSENTS = ("drop_columns", "drop_retained", "allow")
"""The options of jobs that say what may be dropped, which takes an approver."""


def retry_role(job: Job) -> Role:
    """Return the role that retrying a job takes: that of requesting it, or more where it says what may be dropped."""
    if any(job.options.get(name) for name in CONSENTS):
        return "approver"
    return spec_of(job.kind).role


OPEN = frozenset(
    {"GET /healthz", "GET /readyz", f"GET {PREFIX}/openapi.json", f"GET {PREFIX}/docs", f"GET {PREFIX}/docs.css"}
)
"""Routes without a key: they tell nothing of what the server keeps."""

WHOLE = frozenset(
    {
        "GET /metrics",
        *(spec.route for spec in query_specs().values() if spec.whole),
        *(spec.route for spec in immediate_specs().values() if spec.whole),
    }
)
"""Routes that are about the whole server: a key that is for some groups is not let in."""


@dataclass(frozen=True)
class RequiredRights:
    """Rights that a request needs."""

    role: Role
    whole: bool = False
    """True if it is about the whole server: a key that is limited to groups is refused."""


def required_rights(*routes: str) -> RequiredRights:
    """Return the requirements of all these routes: the highest role, and a key without groups if one needs it."""
    return RequiredRights(max((NEEDS[route] for route in routes), key=ROLES.index), not WHOLE.isdisjoint(routes))


_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="instep", Basic realm="instep"'}


def server_of(request: Request) -> ServerContext:
    server_context: ServerContext = request.app.state.server
    return server_context


SIGNED_IN = "instep.caller"
"""The key of an ASGI scope under which this process names the caller of a request that it makes itself."""


def caller(request: Request, response: Response) -> Caller:
    """Return the key that the request is let in with; a Problem if there is none or it may not do this."""
    server = server_of(request)
    request.state.limit_headers = {}
    identity = request.scope.get(SIGNED_IN)
    if identity is None:
        identity = identified(server, request.headers.get("authorization", ""), address_of(request))
        request.state.limit_headers = server.rates.count(identity.key.id).headers()
        response.headers.update(request.state.limit_headers)
    route = route_name(request)
    check_role(server, identity, route, required_rights(route))
    return identity


def identified(server: ServerContext, authorization: str, address: str) -> Caller:
    """Return the caller of an Authorization header; Problem 401, or 429 after too many wrong ones from an address."""
    given = credentials(authorization)
    if given is None:
        raise ApiProblem(
            401, "unauthorized", "no API key was sent", "send `Authorization: Bearer instep_sk_...`", headers=_CHALLENGE
        )
    key = authenticate(server.store, given[1], given[0])
    if key is None:
        server.rates.fail(address)
        hint = "keys expire and are revoked; an admin sees them under /api/v1/keys"
        raise ApiProblem(401, "unauthorized", "this API key is not accepted", hint, headers=_CHALLENGE)
    return Caller(key)


def credentials(header: str) -> tuple[str | None, str] | None:
    """Parse a header into (key id, or None of a Bearer token; secret). None if it has neither, or Basic without a
    name or a password."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer" and rest.strip():
        return None, rest.strip()
    if scheme.lower() != "basic":
        return None
    try:
        user, _, password = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if user and password else None


def address_of(request: Request) -> str:
    return request.client.host if request.client else "local"


def route_name(request: Request) -> str:
    """Return `METHOD /path` of the route, as the matrix has it."""
    route: Any = request.scope["route"]
    path = str(getattr(route, "path_format", request.url.path))
    return f"{request.method} {path.removeprefix(PREFIX)}"


def check_role(server: ServerContext, who: Caller, route: str, needed: RequiredRights) -> None:
    """Raise a Problem (403) for a key that may not do this. Not to be called in a transaction, which would take its
    entry in the audit log back."""
    key = who.key
    match denied(server.store, who.who, key.role, key.groups, route, needed):
        case "role":
            why = f"{route} needs the role {needed.role}; API key {key.id} is {key.role}"
            raise ApiProblem(403, "forbidden", why, "use another key, or ask an admin for one")
        case "groups":
            why = f"{route} is about the whole server; API key {key.id} is for {', '.join(key.groups)}"
            raise ApiProblem(403, "forbidden", why, "use a key without groups")


def denied(
    store: Store, who: str, role: str, groups: Collection[str], route: str, needed: RequiredRights
) -> Literal["", "role", "groups"]:
    """Return why a key of either API is refused, "" if it is not, and record a refusal in the audit log."""
    if not may(role, needed.role):
        store.audit.add(who, "access.refused", route, {"role": role, "needed": needed.role})
        return "role"
    if needed.whole and groups:
        store.audit.add(who, "access.refused", route, {"groups": sorted(groups)})
        return "groups"
    return ""


CallerDep = Annotated[Caller, Depends(caller)]
ServerDep = Annotated[ServerContext, Depends(server_of)]


_MEANINGS = {
    400: "The request cannot be read.",
    401: "No valid API key was sent.",
    403: "The key's role or groups do not allow it.",
    404: "Not found, or the key has no access to it.",
    405: "This path does not support the method; see Allow.",
    409: "The request conflicts with running work, or a decision is needed first.",
    408: "The request body did not arrive in time.",
    412: "The object has changed since it was read.",
    413: "The body is larger than 1 MiB.",
    415: "The body is not JSON.",
    422: "The request is invalid.",
    429: "The key has made too many requests; see Retry-After.",
    503: "The source, destination, store or a worker cannot be reached.",
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": meaning, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemOut"}}}}
    for status, meaning in _MEANINGS.items()
}
REHEARSED = "Dry run (`dry_run`): nothing was changed."


def router(tag: str) -> APIRouter:
    """Return a router whose routes need a key."""
    return open_router(
        tag, prefix=PREFIX, dependencies=[Depends(caller), Depends(check_parameters)], responses=PROBLEMS
    )


def open_router(tag: str, **options: Any) -> APIRouter:
    """Return a router whose operations have the names of their functions."""
    return APIRouter(tags=[tag], generate_unique_id_function=lambda route: route.name, **options)


def name(description: str) -> Any:
    """Return a name in a path."""
    return Path(min_length=1, max_length=200, description=description)


ConnectionName = Annotated[str, name("Name of the connection.")]


def described_once(app: FastAPI, make: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Return a function that describes an application once: two threads that do it at the same time make the
    framework fail."""
    lock = threading.Lock()

    def openapi() -> dict[str, Any]:
        with lock:
            if not app.openapi_schema:
                app.openapi_schema = make()
            return app.openapi_schema

    return openapi
