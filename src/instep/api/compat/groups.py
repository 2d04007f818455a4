"""Groups and destinations: a group is a destination, under the same id; one without a destination waits for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from instep.api.compat import users
from instep.api.compat.body import Wire, parse
from instep.api.compat.connection import instant
from instep.api.compat.connections import listing
from instep.api.compat.described import lists, says
from instep.api.compat.desk import Desk
from instep.api.compat.envelope import Refusal, not_found, page, success
from instep.api.compat.paging import window
from instep.api.compat.ports import Item, Kind
from instep.api.compat.route import Asked, Body, Name
from instep.api.compat.services import MASK
from instep.api.compat.wire import ConnectionOut, DestinationOut, GroupOut, UserOut
from instep.project.values import SECRET_NAME

router = APIRouter()
_KINDS: tuple[Kind, ...] = ("destination", "group")
_DEFINED = ("postgres", "duckdb", "iceberg", "delta")


class NewGroup(Wire):
    name: str = Field(min_length=1, max_length=63)


class NewDestination(Wire):
    group_id: str = Field(min_length=1)
    service: str = Field(min_length=1)
    region: str = ""
    time_zone_offset: str = Field(default="0", pattern=r"^[+-]?(\d|1[0-2])$")
    config: dict[str, Any] = Field(default_factory=dict)


class DestinationChange(Wire):
    config: dict[str, Any] = Field(default_factory=dict)


@router.get("/groups", **lists(GroupOut))
def groups(request: Request, desk: Asked) -> JSONResponse:
    seen = window(request)
    items, cursor = seen.cut(_page(desk, _KINDS, seen.after, seen.limit + 1), lambda item: item.name)
    return page("Groups retrieved successfully", list(map(_group, items)), cursor)


@router.post("/groups", **says(GroupOut, takes=NewGroup, status=201))
def create_group(desk: Asked, body: Body) -> JSONResponse:
    desk.allow_whole()
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", parse(NewGroup, body).name)
    made = desk.ports.objects.create("group", name, {"name": name}, desk.caller.name)
    return success("Group has been created", _group(made), status=201)


@router.get("/groups/{id}", **says(GroupOut))
def group(id: Name, desk: Asked) -> JSONResponse:
    return success("", _group(_found(desk, "Group", id)))


@router.patch("/groups/{id}", **says(GroupOut, takes=NewGroup))
def change_group(id: Name, desk: Asked, body: Body) -> JSONResponse:
    """A name is what everything else refers to: it can be said again, not changed."""
    found, wanted = _found(desk, "Group", id), parse(NewGroup, body)
    if wanted.name != found.name:
        raise Refusal(409, f"Group '{id}' cannot be renamed.", hint="its name is its id, which connections refer to")
    return success("Group has been updated", _group(found))


@router.delete("/groups/{id}", **says())
def delete_group(id: Name, desk: Asked) -> JSONResponse:
    _delete(desk, _found(desk, "Group", id))
    return success(f"Group with id '{id}' has been deleted")


@router.get("/groups/{id}/connections", **lists(ConnectionOut, "schema"))
def connections_of(id: Name, request: Request, desk: Asked) -> JSONResponse:
    _found(desk, "Group", id)
    return listing(request, desk, id)


@router.get("/groups/{id}/users", **lists(UserOut))
def users_of(id: Name, request: Request, desk: Asked) -> JSONResponse:
    _found(desk, "Group", id)
    return users.members(request, desk, id)


@router.post("/groups/{id}/users", **says(takes=users.NewMember))
def add_user(id: Name, desk: Asked, body: Body) -> JSONResponse:
    _found(desk, "Group", id)
    return users.add(desk, id, body)


@router.delete("/groups/{id}/users/{user}", **says())
def remove_user(id: Name, user: Name, desk: Asked) -> JSONResponse:
    _found(desk, "Group", id)
    return users.remove(desk, id, user)


@router.get("/destinations", **lists(DestinationOut))
def destinations(request: Request, desk: Asked) -> JSONResponse:
    seen = window(request)
    items, cursor = seen.cut(_page(desk, ("destination",), seen.after, seen.limit + 1), lambda item: item.name)
    return page("Destinations retrieved successfully", list(map(_destination, items)), cursor)


@router.post("/destinations", **says(DestinationOut, takes=NewDestination, status=201))
def create_destination(desk: Asked, body: Body) -> JSONResponse:
    desk.allow_whole()
    wanted, objects, who = parse(NewDestination, body), desk.ports.objects, desk.caller.name
    if wanted.service not in _DEFINED:
        known = ", ".join(_DEFINED)
        raise Refusal(400, f"There is no destination of service {wanted.service}; there are {known}.")
    group = _found(desk, "Group", wanted.group_id)
    if group.kind == "destination":
        raise Refusal(409, f"Group '{group.name}' has a destination already.")
    with desk.ports.store.transaction():
        objects.delete("group", group.name, who)
        made = objects.create("destination", group.name, {"type": wanted.service, **wanted.config}, who)
    return success("Destination has been created", _destination(made), status=201)


@router.get("/destinations/{id}", **says(DestinationOut))
def destination(id: Name, desk: Asked) -> JSONResponse:
    return success("", _destination(_found(desk, "Destination", id)))


@router.patch("/destinations/{id}", **says(DestinationOut, takes=DestinationChange))
def change_destination(id: Name, desk: Asked, body: Body) -> JSONResponse:
    desk.allow_whole()
    _found(desk, "Destination", id)
    config = {k: v for k, v in parse(DestinationChange, body).config.items() if v != MASK and k != "type"}
    made = desk.ports.objects.change("destination", id, config, desk.caller.name)
    return success("Destination has been updated", _destination(made))


@router.delete("/destinations/{id}", **says())
def delete_destination(id: Name, desk: Asked) -> JSONResponse:
    _delete(desk, _found(desk, "Destination", id))
    return success(f"Destination with id '{id}' has been deleted")


def _page(desk: Desk, kinds: Sequence[Kind], after: str, limit: int) -> list[Item]:
    """Several kinds as one list by name, of what the key may see; a key that sees few names them itself."""
    objects = desk.ports.objects
    if desk.caller.groups:
        named = sorted(name for name in desk.caller.groups if name > after)
        found = [item for name in named for kind in kinds if (item := objects.get(kind, name))]
    else:
        found = [item for kind in kinds for item in objects.page(kind, after=after, limit=limit)]
    return sorted(found, key=lambda item: item.name)[:limit]


def _found(desk: Desk, what: str, id: str) -> Item:
    kinds = ("destination",) if what == "Destination" else _KINDS
    found = next((item for kind in kinds if (item := desk.ports.objects.get(kind, id))), None)
    if found is None or not desk.sees(id):
        raise not_found(what, id)
    return found


def _delete(desk: Desk, item: Item) -> None:
    desk.allow_whole()
    if desk.ports.objects.connections(limit=1, group=item.name):
        raise Refusal(409, f"Destination '{item.name}' is in use.", hint="delete its connections first")
    desk.ports.objects.delete(item.kind, item.name, desk.caller.name)


def _group(item: Item) -> dict[str, Any]:
    return {"id": item.name, "name": item.name, "created_at": instant(item.created)}


def _destination(item: Item) -> dict[str, Any]:
    config = {k: _masked(k, v) for k, v in item.spec.items() if k != "type"}
    return {
        "id": item.name, "group_id": item.name, "service": item.spec.get("type", ""), "region": "LOCAL",
        "time_zone_offset": "0", "setup_status": "connected", "networking_method": "Directly", "config": config,
    }  # fmt: skip


def _masked(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _masked(k, v) for k, v in value.items()}
    return MASK if SECRET_NAME.search(name) else value
