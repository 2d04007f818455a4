"""Groups: each is a destination, under the same id; one without a destination waits for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from instep.server.fivetran_api import users
from instep.server.fivetran_api.connection import instant
from instep.server.fivetran_api.connection_bodies import note, noted
from instep.server.fivetran_api.connections import listing
from instep.server.fivetran_api.http.envelope import Refusal, not_found, page, success, window
from instep.server.fivetran_api.http.models import ConnectionDocument, GroupOut, UserOut
from instep.server.fivetran_api.http.ports import Item, Kind
from instep.server.fivetran_api.http.request_body import RequestBody, fields_of, parse
from instep.server.fivetran_api.http.request_context import RequestContext
from instep.server.fivetran_api.http.route import Body, Name, RequestContextDep, lists, route_options

router = APIRouter()
_KINDS: tuple[Kind, ...] = ("destination", "group")


class NewGroupBody(RequestBody):
    name: str = Field(min_length=1, max_length=63)


@router.get("/groups", **lists(GroupOut))
def groups(request: Request, context: RequestContextDep) -> JSONResponse:
    seen = window(request)
    items, cursor = seen.cut(named(context, _KINDS, seen.after, seen.limit + 1), lambda item: item.name)
    return page("Groups retrieved successfully", _shown(context, items), cursor)


@router.post("/groups", **route_options(GroupOut, takes=NewGroupBody, status=201))
def create_group(context: RequestContextDep, body: Body) -> JSONResponse:
    parsed = parse(NewGroupBody, body)
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", parsed.name)
    with context.ports.store.transaction():
        made = context.ports.objects.create("group", name, {"name": parsed.name}, context.caller.name)
        context.record(id=name, fields=fields_of(body))
    return success(parsed.remark("Group has been created"), _shown(context, [made])[0], status=201)


@router.get("/groups/{id}", **route_options(GroupOut))
def group(id: Name, context: RequestContextDep) -> JSONResponse:
    return success("", _shown(context, [existing(context, "Group", id)])[0])


@router.patch("/groups/{id}", **route_options(GroupOut, takes=NewGroupBody))
def change_group(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    """Rename a group; the id that everything refers to stays."""
    stored, parsed = existing(context, "Group", id), parse(NewGroupBody, body)
    with context.write(body):
        if stored.kind == "group":
            context.ports.objects.change("group", id, {"name": parsed.name}, context.caller.name)
        else:
            note(context, "destination", id, {"name": parsed.name})
    return success(parsed.remark("Group has been updated"), _shown(context, [existing(context, "Group", id)])[0])


@router.delete("/groups/{id}", **route_options())
def delete_group(id: Name, context: RequestContextDep) -> JSONResponse:
    with context.write():
        remove(context, existing(context, "Group", id))
    return success(f"Group with id '{id}' has been deleted")


@router.get("/groups/{id}/connections", **lists(ConnectionDocument, "schema"))
def connections_of(id: Name, request: Request, context: RequestContextDep) -> JSONResponse:
    existing(context, "Group", id)
    return listing(request, context, id)


@router.get("/groups/{id}/users", **lists(UserOut))
def users_of(id: Name, request: Request, context: RequestContextDep) -> JSONResponse:
    existing(context, "Group", id)
    return users.members(request, context, id)


@router.post("/groups/{id}/users", **route_options(takes=users.NewMember))
def add_user(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    existing(context, "Group", id)
    return users.add(context, id, body)


@router.delete("/groups/{id}/users/{user}", **route_options())
def remove_user(id: Name, user: Name, context: RequestContextDep) -> JSONResponse:
    existing(context, "Group", id)
    return users.remove(context, id, user)


def named(context: RequestContext, kinds: Sequence[Kind], after: str, limit: int) -> list[Item]:
    """Return several kinds as one list by name, limited to what the key may see; a key that sees few names them
    itself."""
    objects = context.ports.objects
    if context.caller.groups:
        named = sorted(name for name in context.caller.groups if name > after)
        members = [item for name in named for kind in kinds if (item := objects.get(kind, name))]
    else:
        members = [item for kind in kinds for item in objects.page(kind, after=after, limit=limit)]
    return sorted(members, key=lambda item: item.name)[:limit]


def existing(context: RequestContext, what: str, id: str) -> Item:
    kinds = ("destination",) if what == "Destination" else _KINDS
    member = next((item for kind in kinds if (item := context.ports.objects.get(kind, id))), None)
    if member is None or not context.sees(id):
        raise not_found(what, id)
    return member


def remove(context: RequestContext, item: Item) -> None:
    """Delete a group or a destination that no connection uses. Call it in a transaction."""
    if context.ports.objects.connections(limit=1, group=item.name):
        raise Refusal(409, f"Destination '{item.name}' is in use.", hint="delete its connections first")
    context.ports.objects.delete(item.kind, item.name, context.caller.name)


def group_names(context: RequestContext, items: Sequence[Item]) -> dict[str, str]:
    """Return these groups' names, by id."""
    notes = noted(context.ports, "destination", [item.name for item in items if item.kind == "destination"])
    names = {item.name: item.spec if item.kind == "group" else notes.get(item.name, {}) for item in items}
    return {id: str(spec.get("name") or id) for id, spec in names.items()}


def _shown(context: RequestContext, items: Sequence[Item]) -> list[dict[str, Any]]:
    names = group_names(context, items)
    return [{"id": i.name, "name": names[i.name], "created_at": instant(i.created)} for i in items]
