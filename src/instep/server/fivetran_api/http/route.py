"""Dependencies of all routes: the context of the request, its body, names from the path, and the role that a key needs.

A route of `/v1` needs the role of the same act over `/api/v1`, whose matrix names it for both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from pydantic import AfterValidator, BaseModel
from pydantic.json_schema import models_json_schema

from instep.server.access import RequiredRights, required_rights
from instep.server.fivetran_api.http.envelope import LIMIT, MAX_CURSOR, MAX_LIMIT, Refusal
from instep.server.fivetran_api.http.models import Done, Items, One, RefusedAnswer
from instep.server.fivetran_api.http.ports import Ports
from instep.server.fivetran_api.http.request_body import TEST_ONLY, read
from instep.server.fivetran_api.http.request_context import RequestContext, caller_of

_AT = "POST /connections/{connection}"
_PAUSE, _SYNC, _DETECT, _BACKFILL = f"{_AT}/pause", f"{_AT}/sync", f"{_AT}/detect", f"{_AT}/backfills"
_SWITCH, _SETTINGS = f"{_AT}/selection", "PATCH /connections/{connection}/settings"
_SOURCE = "PATCH /sources/{name}"
_SCHEMAS = "/connections/{id}/schemas"
_TABLE = f"{_SCHEMAS}/{{schema}}/tables/{{table}}"
_READS: Mapping[str, tuple[str, ...]] = {
    "/connections": ("/connections",),
    "/connections/{connection}": ("/connections/{id}",),
    "/connections/{connection}/selection": (_SCHEMAS, f"{_TABLE}/columns"),
    "/connections/{connection}/schema": tuple(
        f"/metadata/{word}/{{id}}/{what}" for word in ("connectors", "connections")
        for what in ("schemas", "tables", "columns")
    ),
    "/destinations": ("/destinations", "/groups"),
    "/destinations/{name}": (
        "/destinations/{id}", "/groups/{id}", "/groups/{id}/connections", "/groups/{id}/users",
    ),
    "/me": (
        "/account/info", "/users", "/metadata/connector-types", "/metadata/connector-types/{service}",
        "/proxy", "/external-logging", "/transformations/package-metadata", "/connector-sdk/packages", "/dbt/projects",
        "/{any:plural}", "/{parents:plural}/{id}/{any:plural}",
    ),
}  # fmt: skip
SAME: Mapping[str, tuple[str, ...]] = {
    **{f"GET {path}": (f"GET {there}",) for there, paths in _READS.items() for path in paths},
    "POST /connections": ("POST /connections", "POST /sources"),
    "PATCH /connections/{id}": (_PAUSE,),  # and more by what it changes: `of_change`
    "DELETE /connections/{id}": ("DELETE /connections/{connection}",),
    "POST /connections/{id}/connect-card": ("POST /connections",),
    "POST /connections/{id}/sync": (_SYNC,),
    "POST /connections/{id}/force": (_SYNC,),
    "POST /connections/{id}/resync": (_BACKFILL,),
    "POST /connections/{id}/test": (_DETECT,),
    "GET /connections/{id}/state": (_SETTINGS,),  # a connector may keep a token in it
    "PATCH /connections/{id}/state": (_SETTINGS,),
    f"POST {_SCHEMAS}": (_SWITCH,),
    f"PATCH {_SCHEMAS}": (_SWITCH,),
    f"POST {_SCHEMAS}/reload": (_DETECT,),  # and more by what it switches: `of_reload`
    f"POST {_SCHEMAS}/drop-columns": (_SWITCH,),
    f"POST {_SCHEMAS}/tables/resync": (_BACKFILL,),
    f"PATCH {_SCHEMAS}/{{schema}}": (_SWITCH,),
    f"PATCH {_TABLE}": (_SWITCH,),
    f"POST {_TABLE}/resync": (_BACKFILL,),
    f"PATCH {_TABLE}/columns/{{column}}": (_SWITCH,),
    f"DELETE {_TABLE}/columns/{{column}}": (_SWITCH,),
    "POST /groups": ("POST /destinations",),
    "PATCH /groups/{id}": ("PATCH /destinations/{name}",),
    "DELETE /groups/{id}": ("DELETE /destinations/{name}",),
    "POST /groups/{id}/users": ("POST /keys",),
    "DELETE /groups/{id}/users/{user}": ("DELETE /keys/{key}",),
    "POST /destinations": ("POST /destinations",),
    "PATCH /destinations/{id}": ("PATCH /destinations/{name}",),
    "DELETE /destinations/{id}": ("DELETE /destinations/{name}",),
    "POST /destinations/{id}/test": (_DETECT,),
    "GET /users/{id}": ("GET /me",),  # and more for another one than who asks
    "POST /users": ("POST /keys",),
    "PATCH /users/{id}": ("POST /keys",),
    "DELETE /users/{id}": ("DELETE /keys/{key}",),
    "GET /webhooks": ("POST /channels",),  # a receiver's address is often all that keeps others out of it
    "GET /webhooks/{id}": ("POST /channels",),
    "POST /webhooks/account": ("POST /channels",),
    "POST /webhooks/group/{group}": ("POST /channels",),
    "PATCH /webhooks/{id}": ("PATCH /channels/{name}",),
    "POST /webhooks/{id}/test": ("POST /channels",),
    "DELETE /webhooks/{id}": ("DELETE /channels/{name}",),
}
"""The routes of `/api/v1` that together do what a route of `/v1` does."""
NEEDS: Mapping[str, RequiredRights] = {route: required_rights(*same) for route, same in SAME.items()}
_WORK = TEST_ONLY | {"paused", "is_historical_sync"}
"""Fields of a connection that start and stop it; the others are its settings."""
_PERMANENT = frozenset(("group_id", "service"))
"""Keys that may be sent again."""


def of_change(fields: Collection[str]) -> RequiredRights:
    """Return the requirements for changing these fields of a connection: its `config` may hold another source, and
    secrets."""
    if "config" in fields or "auth" in fields:
        return required_rights(_SOURCE)
    return required_rights(_PAUSE) if set(fields) <= _WORK | _PERMANENT else required_rights(_SETTINGS)


def of_reload(mode: str) -> RequiredRights:
    """Return the requirements of a reload that leaves switches as they are (PRESERVE), or sets them all."""
    return required_rights(_DETECT) if mode == "PRESERVE" else required_rights(_SWITCH)


def context(request: Request) -> RequestContext:
    """Return the request's context; raises Refusal: 401 without a key, 403 where its role or groups do not suffice,
    406 for an Accept that cannot be met."""
    ports: Ports = request.app.state.ports
    path = request.scope["route"].path
    request_context = RequestContext(ports, caller_of(request, ports), f"{request.method} /v1{path}", request.url.path)
    request_context.allow(NEEDS[f"{request.method} {path}"])
    words = {part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "*/*").split(",")}
    if not words & {"", "*/*", "application/*", "application/json"}:
        raise Refusal(406, "The answer is application/json; the Accept header does not take it.")
    return request_context


RequestContextDep = Annotated[RequestContext, Depends(context)]
Body = Annotated[Any, Depends(read)]
Name = Annotated[str, AfterValidator(unquote)]
"""A part of the path, which is matched before it is decoded, so that names may hold slashes."""


_TAKEN: dict[str, type[BaseModel]] = {}
"""The bodies of all routes by name."""
_REF = "#/components/schemas/{model}"
_REFUSALS = {
    400: "The request makes no sense, or its source or destination has refused.",
    401: "No valid key was sent.",
    403: "The key's role or groups do not allow it.",
    404: "Not found, or the key has no access to it.",
    405: "This cannot be done here.",
    406: "The Accept header takes no JSON.",
    408: "The request body did not arrive in time.",
    409: "It conflicts with what is there.",
    413: "The body is larger than 1 MiB.",
    415: "The body is not JSON.",
    429: "The key has asked too often; see Retry-After.",
    503: "No worker has answered in time; see Retry-After.",
}
_PAGED = [
    {
        "name": "limit",
        "in": "query",
        "required": False,
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": LIMIT},
    },
    {
        "name": "cursor",
        "in": "query",
        "required": False,
        "schema": {"type": "string", "maxLength": MAX_CURSOR},
        "description": "`next_cursor` of the previous page.",
    },
]
_ABOUT = "Programs for the management API of managed connectors work against this one by changing their base URL."


def route_options(
    data: Any = None, *, takes: type[BaseModel] | None = None, status: int = 200, needs_body: bool = True
) -> dict[str, Any]:
    """Return the options of a route that answers this in `data` (None: nothing) with that status. `needs_body`: it
    cannot be left out."""
    model = Done if data is None else One[data]
    extra: dict[str, Any] = {}
    if takes is not None:
        _TAKEN[takes.__name__] = takes
        content = {"application/json": {"schema": {"$ref": _REF.format(model=takes.__name__)}}}
        extra["requestBody"] = {"required": needs_body, "content": content}
    return {
        "status_code": status,
        "openapi_extra": extra,
        "responses": {status: {"model": model, "description": "Done."}},
    }


def lists(item: Any, *filters: str) -> dict[str, Any]:
    """Return the options of a route that answers pages of items; `filters` are its own parameters."""
    parameters = [{"name": name, "in": "query", "required": False, "schema": {"type": "string"}} for name in filters]
    options = route_options(Items[item])
    options["openapi_extra"] = {"parameters": [*_PAGED, *parameters]}
    return options


def document_of(app: FastAPI, prefix: str) -> dict[str, Any]:
    document = get_openapi(title=app.title, version="1", description=_ABOUT, routes=app.routes)
    document["paths"] = {prefix + path: operations for path, operations in document["paths"].items()}
    schemas = document["components"]["schemas"]
    for schema in ("HTTPValidationError", "ValidationError"):  # the framework's errors are never answered
        schemas.pop(schema, None)
    refusals = {f"Refused{status}": _refusal(text) for status, text in _REFUSALS.items()}
    document["components"]["responses"] = refusals
    models = [(model, "validation") for model in (*_TAKEN.values(), RefusedAnswer)]
    _, taken = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
    schemas.update(taken["$defs"])
    document["components"]["securitySchemes"] = {"basic": {"type": "http", "scheme": "basic"}}
    for methods in document["paths"].values():
        for operation in methods.values():
            operation["security"] = [{"basic": []}]
            operation["responses"].pop("422", None)
            operations = {str(status): {"$ref": f"#/components/responses/Refused{status}"} for status in _REFUSALS}
            operation["responses"].update(operations)
    return document


def _refusal(text: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REF.format(model=RefusedAnswer.__name__)}}}
    return {"description": text, "content": content}
