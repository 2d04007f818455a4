"""The routes of operations that are done at once: path, role, body and answer are those of the specification.

What If-Match is compared with stands in `AS_READ`, which has a function for each document that is read with an
ETag; what else a key has to be allowed in `_CHECKS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from inspect import Parameter, Signature
from typing import Annotated, Any, get_type_hints

from fastapi import APIRouter, Path
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, create_model
from starlette.responses import Response

from instep.control.immediate.context import WriteContext
from instep.control.queries.decisions import rollout_of
from instep.control.queries.objects import managed
from instep.control.queries.work import JobDetails
from instep.errors import NotFound
from instep.operations.immediate.work import RetryJobRequest
from instep.operations.queries.decisions import GetChange, GetRollout, GetSelection
from instep.operations.queries.govern import GetDelivery, GetKey
from instep.operations.queries.objects import (
    GetChannelDocument,
    GetDestinationDocument,
    GetObject,
    GetPolicyDocument,
    GetSettings,
    GetSourceDocument,
)
from instep.operations.queries.work import GetConnection, GetDetector, GetQueuedJob
from instep.operations.registry import immediate_specs, result_of, work_of
from instep.operations.spec import ImmediateRequest, ImmediateSpec, ImmediateWork, Query
from instep.server.access import REHEARSED, CallerDep, RequiredRights, ServerDep, check_role, retry_role, router
from instep.server.context import Caller, ServerContext
from instep.server.models import DryRunResult
from instep.server.problems import ApiProblem
from instep.server.query_routes import context_of, read_document
from instep.server.requests import Requested, record_of, request_model, texts_of
from instep.server.writes import Matched, Write, WriteAnswer, Writes


def _check_retry(server: ServerContext, who: Caller, request: RetryJobRequest) -> None:
    """Raise problem 403 for who may not request what the job does: retrying it takes the same role."""
    job = JobDetails().find(context_of(server, who), GetQueuedJob(request.job))
    check_role(server, who, "POST /queue/{job}/retry", RequiredRights(retry_role(job)))


def _check_channel(server: ServerContext, who: Caller, request: Any) -> None:
    """Raise NotFound for a channel that is not there, or that none of the key's connections uses."""
    managed(context_of(server, who), "channel", request.name)


def _found(query: Callable[[Any], Query]) -> Callable[[ServerContext, Caller, Any], Mapping[str, Any]]:
    """Return a reader of the document that a query returns for the object of a request."""

    return lambda server, who, request: read_document(server, who, query(request))


def _document(query: type[GetObject]) -> Callable[[ServerContext, Caller, Any], Mapping[str, Any]]:
    """Return a reader of the document of an object that may be gone: then it differs from the one that was read."""

    def read(server: ServerContext, who: Caller, request: Any) -> Mapping[str, Any]:
        try:
            return read_document(server, who, query(request.name))
        except NotFound:
            message = f"{query.kind} {request.name!r} no longer exists"
            raise ApiProblem(412, "precondition_failed", message, "read the list again") from None

    return read


Read = Callable[[ServerContext, Caller, Any], Mapping[str, Any]]
AS_READ: Mapping[str, Sequence[Read]] = {
    "connection": (
        _found(lambda request: GetConnection(request.connection, freshness=False)),
        _found(lambda request: GetConnection(request.connection, freshness=True)),
    ),
    "change": (_found(lambda request: GetChange(request.change)),),
    "key": (_found(lambda request: GetKey(request.key)),),
    "rollout": (_found(lambda request: GetRollout(request.rollout)),),
    "detector": (_found(lambda request: GetDetector(request.connection)),),
    "delivery": (_found(lambda request: GetDelivery(request.delivery)),),
    "source": (_document(GetSourceDocument),),
    "destination": (_document(GetDestinationDocument),),
    "policy": (_document(GetPolicyDocument),),
    "channel": (_document(GetChannelDocument),),
    "settings": (_found(lambda request: GetSettings(request.connection)),),
    "selection": (
        _found(lambda request: GetSelection(request.connection, columns=False)),
        _found(lambda request: GetSelection(request.connection, columns=True)),
    ),
}
"""The document that If-Match is compared with, in each way that it may be read, by the name that a specification has
for it."""
_CHECKS: Mapping[str, Callable[[ServerContext, Caller, Any], None]] = {
    "retry_job": _check_retry,
    "test_channel": _check_channel,
    "open_channel": _check_channel,
}
"""Further checks of what a key may do, by operation."""


def body_of(spec: ImmediateSpec) -> type[Requested] | None:
    """Return the body of a request; None where its path says all of it."""
    in_path = _in_path(spec)
    return request_model(spec.request, in_path) if len(fields(spec.request)) > len(in_path) else None


def _in_path(spec: ImmediateSpec) -> tuple[str, ...]:
    return tuple(re.findall(r"{(\w+)}", spec.path))


def _add(routes: APIRouter, spec: ImmediateSpec) -> None:
    in_path, body = _in_path(spec), body_of(spec)
    types, texts = get_type_hints(spec.request, include_extras=True), texts_of(spec.request)

    def endpoint(server: ServerDep, who: CallerDep, writes: Write, **given: Any) -> Response:
        request = _request(spec.request, {one: given[one] for one in in_path}, given.get("asked"))
        return _perform(server, who, writes, spec, request)

    common = {"server": ServerDep, "who": CallerDep, "writes": Matched if spec.match else Writes}
    own = {one: Annotated[types[one], Path(description=texts[one])] for one in in_path}
    request_body = {"asked": body} if body else {}
    made: Callable[..., Any] = endpoint
    made.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind)
            for name, kind in {**common, **own, **request_body}.items()
        ]
    )
    made.__name__, made.__doc__ = spec.name, spec.request.__doc__
    method, _, path = spec.route.partition(" ")
    response = _response_model(spec)
    before = "The object was changed." if spec.fresh == "created" else "The job existed before this request."
    text = f"{before} {REHEARSED}" if spec.fresh else REHEARSED
    more: Any = {200: {"model": response, "description": text}} if spec.status != 200 else {}
    routes.add_api_route(
        path, made, methods=[method], status_code=spec.status, response_model=response, responses=more, name=spec.name
    )


def _request(record: type[ImmediateRequest], in_path: Mapping[str, Any], body: Requested | None) -> ImmediateRequest:
    try:
        request: ImmediateRequest = record(**in_path) if body is None else record_of(body, **in_path)
    except ValueError as error:  # fields that do not go together
        raise RequestValidationError([{"type": "value_error", "loc": ("body",), "msg": str(error)}]) from None
    return request


def _perform(
    server: ServerContext, who: Caller, writes: Write, spec: ImmediateSpec, request: ImmediateRequest
) -> Response:
    """Perform the operation and record it in one transaction. What the key may not see is unknown, though it was
    answered before."""
    if (connection := getattr(request, "connection", None)) is not None:
        server.connection(who, connection)
    if (check := _CHECKS.get(spec.name)) is not None:
        check(server, who, request)
    context = WriteContext(
        server.project,
        lambda: server.store,
        server.names(who),
        lambda one: server.sees(who, one),
        key=who.key,
        who=who.who,
        open_channel=server.app.channel,
        rehearsed=writes.dry_run,
    )
    if (rollout := getattr(request, "rollout", None)) is not None:
        rollout_of(context, rollout)
    work: ImmediateWork = work_of(spec)()
    prepared = None if writes.repeated() else work.prepare(context, request)

    def do() -> WriteAnswer:
        if spec.match:
            writes.check(
                *(() if writes.match is None else (read(server, who, request) for read in AS_READ[spec.match]))
            )
        result = work.execute(context, request, prepared)
        body = {field.name: getattr(result, field.name) for field in fields(result)}
        again = {**body, spec.secret_field: None} if spec.secret_field else body
        status = 200 if spec.fresh and not body[spec.fresh] else spec.status
        return WriteAnswer(again if writes.dry_run else body, status, work.detail(request, result), replay_body=again)

    return writes.run(*spec.noted(request), do)


def _response_model(spec: ImmediateSpec) -> type[BaseModel]:
    """Return the description of the answer: the fields of its record, and whether it was only rehearsed."""
    record = result_of(spec)
    hints, texts = get_type_hints(record, include_extras=True), texts_of(record)
    made: dict[str, Any] = {
        field.name: (hints[field.name], Field(description=texts.get(field.name))) for field in fields(record)
    }
    name = f"{spec.request.__name__.removesuffix('Request')}Response"
    return create_model(name, __base__=DryRunResult, __doc__=record.__doc__, **made)


def _made() -> APIRouter:
    made = router("operations")
    for spec in immediate_specs().values():
        _add(made, spec)
    return made


routes = _made()
