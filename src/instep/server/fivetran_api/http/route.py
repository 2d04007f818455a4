"""What all routes take: the context of the request, its body, and names out of the path."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from pydantic import AfterValidator, BaseModel
from pydantic.json_schema import models_json_schema

from instep.server.fivetran_api.http.envelope import Refusal
from instep.server.fivetran_api.http.models import Done, Items, One, RefusedAnswer
from instep.server.fivetran_api.http.paging import LIMIT, MAX_CURSOR, MAX_LIMIT
from instep.server.fivetran_api.http.ports import Ports
from instep.server.fivetran_api.http.request_body import read
from instep.server.fivetran_api.http.request_context import RequestContext, caller_of
from instep.server.fivetran_api.http.roles import NEEDS


def context(request: Request) -> RequestContext:
    """Refusal: 401 without a key, 403 where its role or groups do not do, 406 for an Accept that cannot be met."""
    ports: Ports = request.app.state.ports
    path = request.scope["route"].path
    found = RequestContext(ports, caller_of(request, ports), f"{request.method} /v1{path}", request.url.path)
    found.allow(NEEDS[f"{request.method} {path}"])
    _check_accept(request.headers.get("accept", "*/*"))
    return found


def _check_accept(accept: str) -> None:
    words = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    if not words & {"", "*/*", "application/*", "application/json"}:
        raise Refusal(406, "The answer is application/json; the Accept header does not take it.")


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


def says(
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
    own = [{"name": name, "in": "query", "required": False, "schema": {"type": "string"}} for name in filters]
    found = says(Items[item])
    found["openapi_extra"] = {"parameters": [*_PAGED, *own]}
    return found


def document_of(app: FastAPI, prefix: str) -> dict[str, Any]:
    found = get_openapi(title=app.title, version="1", description=_ABOUT, routes=app.routes)
    found["paths"] = {prefix + path: operations for path, operations in found["paths"].items()}
    schemas = found["components"]["schemas"]
    for own in ("HTTPValidationError", "ValidationError"):  # the framework's errors are never answered
        schemas.pop(own, None)
    refusals = {f"Refused{status}": _refusal(text) for status, text in _REFUSALS.items()}
    found["components"]["responses"] = refusals
    models = [(model, "validation") for model in (*_TAKEN.values(), RefusedAnswer)]
    _, taken = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
    schemas.update(taken["$defs"])
    found["components"]["securitySchemes"] = {"basic": {"type": "http", "scheme": "basic"}}
    for methods in found["paths"].values():
        for operation in methods.values():
            operation["security"] = [{"basic": []}]
            operation["responses"].pop("422", None)
            operations = {str(status): {"$ref": f"#/components/responses/Refused{status}"} for status in _REFUSALS}
            operation["responses"].update(operations)
    return found


def _refusal(text: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REF.format(model=RefusedAnswer.__name__)}}}
    return {"description": text, "content": content}
