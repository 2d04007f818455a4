"""The routes of queries: path, role, parameters and answer are those of the specification."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Annotated, Any, cast, get_type_hints

from fastapi import APIRouter, Path
from fastapi import Query as InQuery
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, create_model
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse

from instep.control.queries.context import QueryContext
from instep.operations.registry import page_summary_of, query_for, query_specs, result_of, work_of
from instep.operations.spec import Query, QuerySpec, QueryWork
from instep.server.access import CallerDep, ServerDep, router
from instep.server.context import Caller, ServerContext
from instep.server.models import Page, QueryParameters
from instep.server.paging import PageParameters, page_parameters, paged, place
from instep.server.requests import Requested, parameters_model, record_of, request_model, texts_of
from instep.server.writes import as_json, tagged


def context_of(server: ServerContext, caller: Caller) -> QueryContext:
    """Return the context of this caller's queries."""
    return QueryContext(
        server.project,
        lambda: server.store,
        server.names(caller),
        lambda one: server.sees(caller, one),
        caller.key,
        open_connection=server.app.sync_context,
    )


def read_document(server: ServerContext, caller: Caller, query: Query) -> dict[str, Any]:
    """Return the single result of a query as it is read, which its ETag goes by."""
    document: dict[str, Any] = as_json(work_of(query_for(query))().find(context_of(server, caller), query))
    return document


def query_body(spec: QuerySpec) -> type[Requested] | None:
    """Return the body of a query that has one."""
    return request_model(spec.query, _in_path(spec)) if spec.has_body else None


def _in_path(spec: QuerySpec) -> tuple[str, ...]:
    return tuple(re.findall(r"{(\w+)}", spec.path))


def _add(routes: APIRouter, spec: QuerySpec) -> None:
    in_path, body = _in_path(spec), query_body(spec)
    types, texts = get_type_hints(spec.query, include_extras=True), texts_of(spec.query)
    base = page_parameters(spec.page_size, spec.largest_page) if spec.paged else QueryParameters
    model = body or parameters_model(spec.query, base, in_path)
    item: Any = result_of(spec)

    def endpoint(request: HttpRequest, server: ServerDep, who: CallerDep, **given: Any) -> Any:
        query = _query(spec.query, {one: given[one] for one in in_path}, given["parameters"])
        work: QueryWork = work_of(spec)()
        context = context_of(server, who)
        if body is not None:
            answer = as_json(work.find(context, query))
            return JSONResponse(answer, headers=dict(request.state.limit_headers))
        if not spec.paged:
            return tagged(request, as_json(work.find(context, query)))
        page = given["parameters"]
        records = work.items(context, query, place(page.cursor, *work.place_types), page.limit + 1)
        answer = paged(records, page.limit, work.place, lambda one: one)
        answer["items"] = list(work.shown(context, answer["items"]))
        if spec.page_summary:
            answer |= vars(work.page_summary(context, query))
        return JSONResponse(as_json(answer), headers=dict(request.state.limit_headers))

    own = [
        Parameter(one, Parameter.KEYWORD_ONLY, annotation=Annotated[types[one], Path(description=texts[one])])
        for one in in_path
    ]
    parameters_type: Any = model if body else Annotated[model, InQuery()]
    own.append(Parameter("parameters", Parameter.KEYWORD_ONLY, annotation=parameters_type))
    common = [Parameter(one, Parameter.KEYWORD_ONLY, annotation=kind) for one, kind in _COMMON.items()]
    made: Callable[..., Any] = endpoint
    made.__signature__ = Signature([*common, *own])  # type: ignore[attr-defined]
    made.__name__, made.__doc__ = spec.name, spec.query.__doc__
    response: Any = _page(spec) if spec.paged else item
    method = spec.route.partition(" ")[0]
    routes.add_api_route(spec.path, made, methods=[method], response_model=response, name=spec.name)


_COMMON = {"request": HttpRequest, "server": ServerDep, "who": CallerDep}


def _page(spec: QuerySpec) -> Any:
    """Return the description of a page: its items, and what it has beside them."""
    page: Any = Page.__class_getitem__(result_of(spec))
    if (beside := page_summary_of(spec)) is None:
        return page
    hints, texts = get_type_hints(beside, include_extras=True), texts_of(beside)
    more: dict[str, Any] = {name: (hint, Field(description=texts.get(name))) for name, hint in hints.items()}
    return create_model(f"{spec.query.__name__}Page", __base__=page, __doc__=beside.__doc__, **more)


def _query(record: type[Query], in_path: dict[str, Any], parameters: BaseModel) -> Query:
    own = {name for name in type(parameters).model_fields if name not in PageParameters.model_fields}
    try:
        if isinstance(parameters, Requested):
            return cast(Query, record_of(parameters, **in_path))
        return record(**in_path, **{name: getattr(parameters, name) for name in own})
    except ValueError as error:  # fields that do not go together
        where = "body" if isinstance(parameters, Requested) else "query"
        raise RequestValidationError([{"type": "value_error", "loc": (where,), "msg": str(error)}]) from None


def _made() -> APIRouter:
    made = router("queries")
    for spec in query_specs().values():
        _add(made, spec)
    return made


routes = _made()
