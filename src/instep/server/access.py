"""Who calls: an API key as Bearer token or as the password of Basic, its role against what the route needs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from typing import Annotated, Any, Literal

from fastapi import Depends, Request, Response

from instep.control.resources.api_keys import authenticate, may
from instep.server.context import Caller, ServerContext
from instep.server.problems import ApiProblem
from instep.server.roles import PREFIX, Need, need
from instep.store.store import Store

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="instep", Basic realm="instep"'}


def server_of(request: Request) -> ServerContext:
    found: ServerContext = request.app.state.server
    return found


def caller(request: Request, response: Response) -> Caller:
    """Return the key that the request is let in with; a Problem if there is none or it may not do this."""
    server = server_of(request)
    found = identified(server, request.headers.get("authorization", ""), address_of(request))
    left = server.rates.count(found.key.id)
    response.headers.update(left.headers())
    request.state.limit_headers = left.headers()
    route = route_name(request)
    check_role(server, found, route, need(route))
    return found


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
    """(key id, or None of a Bearer token; secret) of a header. None if it has none, or Basic without a name or a
    password."""
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
    """`METHOD /path` of the route, as the matrix has it."""
    route: Any = request.scope["route"]
    path = str(getattr(route, "path_format", request.url.path))
    return f"{request.method} {path.removeprefix(PREFIX)}"


def check_role(server: ServerContext, found: Caller, route: str, needed: Need) -> None:
    """Raise a Problem (403) for a key that may not do this. Not to be called in a transaction, which would take its
    entry in the audit log back."""
    key = found.key
    match denied(server.store, found.who, key.role, key.groups, route, needed):
        case "role":
            why = f"{route} needs the role {needed.role}; API key {key.id} is {key.role}"
            raise ApiProblem(403, "forbidden", why, "use another key, or ask an admin for one")
        case "groups":
            why = f"{route} is about the whole server; API key {key.id} is for {', '.join(key.groups)}"
            raise ApiProblem(403, "forbidden", why, "use a key without groups")


def denied(
    store: Store, who: str, role: str, groups: Collection[str], route: str, needed: Need
) -> Literal["", "role", "groups"]:
    """Return what keeps a key of either API from a request, "" if nothing does, and note a refusal in the audit log."""
    if not may(role, needed.role):
        store.audit.add(who, "access.refused", route, {"role": role, "needed": needed.role})
        return "role"
    if needed.whole and groups:
        store.audit.add(who, "access.refused", route, {"groups": sorted(groups)})
        return "groups"
    return ""


CallerDep = Annotated[Caller, Depends(caller)]
ServerDep = Annotated[ServerContext, Depends(server_of)]
