"""The OpenAPI document: what the routes say of themselves, with problems, the ways to send a key, and roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from instep.api.common import PROBLEMS
from instep.api.matrix import NEEDS, PREFIX
from instep.api.wire.base import ProblemOut

_WAYS: dict[str, dict[str, str]] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key's secret: instep_sk_..."},
    "basic": {"type": "http", "scheme": "basic", "description": "An API key's id and its secret."},
}


def describe(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """What makes the document of an application, once."""

    def openapi() -> dict[str, Any]:
        if not app.openapi_schema:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    return openapi


def _document(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = found["components"]["schemas"]
    for own in ("HTTPValidationError", "ValidationError"):  # the framework's errors are never answered
        schemas.pop(own, None)
    schemas["ProblemOut"] = ProblemOut.model_json_schema()
    found["components"]["securitySchemes"] = _WAYS
    for route, operation in _operations(found):
        if role := NEEDS.get(route):
            operation["security"] = [{name: []} for name in _WAYS]
            operation["x-role"] = role
            operation["responses"] = dict(_shortened(operation["responses"]))
    found["components"]["responses"] = {f"Problem{status}": said for status, said in PROBLEMS.items()}
    return found


def _shortened(responses: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Problems are said once for all routes."""
    for status, said in responses.items():
        same = said == PROBLEMS.get(int(status))
        yield status, {"$ref": f"#/components/responses/Problem{status}"} if same else said


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path.removeprefix(PREFIX)}", operation
