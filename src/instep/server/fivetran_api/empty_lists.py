"""Lists of things that there are none of here: clients that read them on their way get an empty page. So do those that
read a list that this API has never heard of, as the other grows."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException

from instep.server.fivetran_api.http.envelope import not_found, page, window
from instep.server.fivetran_api.http.request_context import RequestContext
from instep.server.fivetran_api.http.route import Name, RequestContextDep, lists
from instep.server.fivetran_api.users import user_id

router = APIRouter()
EMPTY = ("proxy", "external-logging", "transformations/package-metadata", "connector-sdk/packages", "dbt/projects")
"""Paths of lists that do not look like lists, or stand below something."""


class Plural(Convertor[str]):
    """Name of a list: a lower-case plural."""

    regex = "[a-z]+(?:-[a-z]+)*s"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("plural", Plural())


def _nothing(request: Request, context: RequestContextDep) -> JSONResponse:
    window(request)
    return page("List retrieved successfully", [], None)


for path in EMPTY:
    router.add_api_route(f"/{path}", _nothing, methods=["GET"], **lists(dict[str, Any]))


router.add_api_route("/{any:plural}", _nothing, methods=["GET"], include_in_schema=False)


@router.get("/{parents:plural}/{id}/{any:plural}", include_in_schema=False)
def below(parents: Name, id: Name, request: Request, context: RequestContextDep) -> JSONResponse:
    """Return an empty list below an existing object."""
    _check_parent(context, parents, id)
    return _nothing(request, context)


def _check_parent(context: RequestContext, parents: str, id: str) -> None:
    get = context.ports.objects.get
    match parents:
        case "connections":
            context.connection(id)
        case "users":
            whole = context.caller.role == "admin" and not context.caller.groups
            if id != user_id(context.caller) and not (whole and get("user", id) is not None):
                raise not_found("User", id)
        case "destinations" | "groups":
            owner = get("destination", id) or (get("group", id) if parents == "groups" else None)
            if owner is None or not context.sees(id):
                raise not_found("Group" if parents == "groups" else "Destination", id)
        case _:
            raise HTTPException(404)
