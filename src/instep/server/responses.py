"""What all routes declare: the problems that they may answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Path

from instep.server.access import caller
from instep.server.problems import MEDIA_TYPE
from instep.server.roles import PREFIX

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
    """Routes behind a key."""
    return open_router(tag, prefix=PREFIX, dependencies=[Depends(caller)], responses=PROBLEMS)


def open_router(tag: str, **options: Any) -> APIRouter:
    """Routes whose operations have the names of their functions."""
    return APIRouter(tags=[tag], generate_unique_id_function=lambda route: route.name, **options)


def name(description: str) -> Any:
    """Return a name in a path."""
    return Path(min_length=1, max_length=200, description=description)


ConnectionName = Annotated[str, name("Name of the connection.")]


def described_once(app: FastAPI, make: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Return what answers the description of an application. It is made once: two threads that make it at the same time
    make the framework fail."""
    lock = threading.Lock()

    def openapi() -> dict[str, Any]:
        with lock:
            if not app.openapi_schema:
                app.openapi_schema = make()
            return app.openapi_schema

    return openapi
