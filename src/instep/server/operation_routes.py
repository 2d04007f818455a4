"""The routes of operations: path, role, body and job are those of the specification.

What one of them has to look up before its job is made stands in `_CHECKS`; operations whose answer is more than a job
have a route of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from instep.operations.registry import specs
from instep.operations.spec import OperationSpec, Request
from instep.server.access import CallerDep, ConnectionName, ServerDep, router
from instep.server.context import Caller, ServerContext
from instep.server.models import JobOut
from instep.server.requests import requested
from instep.server.routes.jobs import STARTED, ask, check_allow, check_owner, check_plan
from instep.server.writes import Writes

_OF_THEIR_OWN = frozenset(
    (
        "sync",
        "detect",
        "refresh",
        "reload",
        "backfill",
        "delete_connection",
        "test_connection",
        "rollout",
        "discover",
        "make_demo",
    )
)

Check = Callable[[ServerContext, Caller, str, Any], None]
_CHECKS: dict[str, tuple[Check, ...]] = {"apply": (check_plan,), "undo": (check_owner,)}


def _add(routes: APIRouter, spec: OperationSpec) -> None:
    method, path = spec.route.split(" ")
    # the checks of a request: an operator may not `allow` that something is lost
    consents = spec.role == "operator" and any(field.name == "allow" for field in fields(spec.request))
    checks = (*((check_allow,) if consents else ()), *_CHECKS.get(spec.name, ()))

    def endpoint(
        server: ServerDep, who: CallerDep, connection: ConnectionName, body: Request, writes: Writes
    ) -> Response:
        name = server.connection(who, connection)
        for check in checks:
            check(server, who, name, body)
        return ask(server, writes, name, spec.name, body.options(), body.why)

    endpoint.__name__ = spec.name
    endpoint.__doc__ = import_module(spec.request.__module__).__doc__
    endpoint.__annotations__["body"] = Annotated[spec.request, Depends(requested(spec.request))]
    routes.add_api_route(
        path, endpoint, methods=[method], status_code=202, response_model=JobOut, responses=STARTED, name=spec.name
    )


def _made() -> APIRouter:
    made = router("operations")
    for spec in specs().values():
        if spec.name not in _OF_THEIR_OWN:
            _add(made, spec)
    return made


routes = _made()
