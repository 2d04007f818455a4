"""Users: the key that asks is one, and so is everybody who was invited. Who is invited comes in with a key that carries
their address as its name: nothing is mailed, and no password is kept."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from instep.server.access import required_rights
from instep.server.fivetran_api.connection import instant
from instep.server.fivetran_api.http.envelope import Refusal, not_found, page, success, window
from instep.server.fivetran_api.http.models import AccountOut, UserOut
from instep.server.fivetran_api.http.ports import ApiCaller, Item
from instep.server.fivetran_api.http.request_body import RequestBody, fields_of, parse
from instep.server.fivetran_api.http.request_context import RequestContext
from instep.server.fivetran_api.http.route import Body, Name, RequestContextDep, lists, route_options
from instep.store.server.api_keys import ApiKey

router = APIRouter()
AccountRole = Literal[
    "Account Administrator",
    "Account Billing",
    "Account Analyst",
    "Account Reviewer",
    "Account Operator",
    "Account Member",
]
GroupRole = Literal[
    "Destination Administrator",
    "Destination Analyst",
    "Destination Reviewer",
    "Destination Creator",
    "Connector Creator",
    "Destination Operator",
]
_ROLES = {
    "viewer": "Account Reviewer",
    "operator": "Account Operator",
    "approver": "Account Analyst",
    "admin": "Account Administrator",
}
_ADDRESS = r"^[^@\s\x00-\x1f]+@[^@\s\x00-\x1f]+$"
_AT_ONCE = 500
_OWN = "A user that is an API key is changed as a key."
_KEYS = "see `instep keys`, or /api/v1/keys"


class NewUser(RequestBody):
    email: str = Field(pattern=_ADDRESS, max_length=254)
    given_name: str = Field(min_length=1, max_length=200)
    family_name: str = Field(min_length=1, max_length=200)
    role: AccountRole | None = None
    phone: str | None = Field(default=None, max_length=50)
    picture: str | None = Field(default=None, max_length=2000)


class UserChange(RequestBody):
    given_name: str | None = Field(default=None, min_length=1, max_length=200)
    family_name: str | None = Field(default=None, min_length=1, max_length=200)
    role: AccountRole | None = None
    phone: str | None = Field(default=None, max_length=50)
    picture: str | None = Field(default=None, max_length=2000)


class NewMember(RequestBody):
    email: str = Field(pattern=_ADDRESS, max_length=254)
    role: GroupRole


@router.get("/users", **lists(UserOut))
def users(request: Request, context: RequestContextDep) -> JSONResponse:
    """List the key that asks, and invited people, whom only administrators see."""
    seen = window(request)
    items, cursor = seen.cut(_all(context, seen.after, seen.limit + 1), lambda one: str(one["id"]))
    return page("Users retrieved successfully", items, cursor)


@router.post("/users", **route_options(UserOut, takes=NewUser, status=201))
def invite(context: RequestContextDep, body: Body) -> JSONResponse:
    parsed = parse(NewUser, body)
    with context.ports.store.transaction():
        if _by_address(context, parsed.email):
            raise Refusal(409, f"There is a user with the email {parsed.email} already.")
        spec = {**parsed.model_dump(exclude_none=True), "groups": {}}
        made = context.ports.objects.create("user", f"user_{secrets.token_hex(6)}", spec, context.caller.name)
        context.record(id=made.name, fields=fields_of(body))
    return success(parsed.remark("User has been invited to the account"), _invited(context, made), status=201)


@router.get("/users/{id}", **route_options(UserOut))
def one(id: Name, context: RequestContextDep) -> JSONResponse:
    if id == user_id(context.caller):
        return success("", user(context.caller))
    return success("", _invited(context, _found(context, id)))


@router.patch("/users/{id}", **route_options(UserOut, takes=UserChange))
def change(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    item, parsed = _found(context, id), parse(UserChange, body)
    patch = parsed.model_dump(exclude_none=True)
    if not patch:
        raise Refusal(400, "The body names no field that is kept.", hint="name one, such as given_name or role")
    with context.write(body):
        made = context.ports.objects.change("user", item.name, patch, context.caller.name)
    return success(parsed.remark("User has been updated"), _invited(context, made))


@router.delete("/users/{id}", **route_options())
def delete(id: Name, context: RequestContextDep) -> JSONResponse:
    context.ports.objects.delete("user", _found(context, id).name, context.caller.name, context.record)
    return success(f"User with id '{id}' has been deleted")


@router.get("/account/info", **route_options(AccountOut))
def account(context: RequestContextDep) -> JSONResponse:
    return success("", {"account_id": "instep", "account_name": "instep", "user_id": user_id(context.caller)})


def members(request: Request, context: RequestContext, group: str) -> JSONResponse:
    """Return a page of those who may use a group: the key that asks, and who was added to it."""
    seen = window(request)
    matching = [
        one for one in _all(context, "") if one["id"] == user_id(context.caller) or group in _groups(context, one)
    ]
    later = [_member(context, one, group) for one in matching if one["id"] > seen.after]
    items, cursor = seen.cut(later, lambda one: str(one["id"]))
    return page("Users retrieved successfully", items, cursor)


def add(context: RequestContext, group: str, body: Any) -> JSONResponse:
    """Add an invited person to a group."""
    parsed = parse(NewMember, body)
    with context.ports.store.transaction():
        item = _by_address(context, parsed.email)
        if item is None:
            raise Refusal(
                404,
                f"There is no user with the email {parsed.email}.",
                code="NotFound_User",
                hint="invite them first: POST /v1/users",
            )
        context.ports.objects.change("user", item.name, {"groups": {group: parsed.role}}, context.caller.name)
        context.record(id=item.name, fields=fields_of(body))
    return success(parsed.remark("User has been added to the group"))


def remove(context: RequestContext, group: str, id: str) -> JSONResponse:
    with context.write():
        item = context.ports.objects.get("user", id)
        if item is None or group not in item.spec["groups"]:
            raise not_found("User", id)
        context.ports.objects.change("user", item.name, {"groups": {group: None}}, context.caller.name)
    return success("User has been removed from the group")


def user_id(caller: ApiCaller) -> str:
    """Return the id of the key that asks."""
    return caller.key or caller.name


def user(caller: ApiCaller) -> dict[str, Any]:
    name = caller.name.removesuffix(f" ({caller.key})")
    return {
        "id": user_id(caller),
        "email": name,
        "given_name": name,
        "family_name": "",
        "verified": True,
        "invited": False,
        "picture": None,
        "phone": None,
        "logged_in_at": None,
        "created_at": None,
        "active": True,
        "role": _ROLES[caller.role],
    }


def _all(context: RequestContext, after: str, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the users by id, from behind `after` on."""
    page = [user(context.caller)] if user_id(context.caller) > after else []
    if context.caller.role == "admin" and not context.caller.groups:
        page += [_invited(context, item) for item in _stored_users(context, after, limit)]
    return sorted(page, key=lambda one: str(one["id"]))[:limit]


def _stored_users(context: RequestContext, after: str = "", limit: int | None = None) -> list[Item]:
    items: list[Item] = []
    while limit is None or len(items) < limit:
        some = context.ports.objects.page("user", after=after, limit=_AT_ONCE)
        items += some
        if len(some) < _AT_ONCE:
            break
        after = some[-1].name
    return items


def _found(context: RequestContext, id: str) -> Item:
    """Return somebody who was invited; raises Refusal: 409 for the key that asks, 404 for an unknown one."""
    context.allow(required_rights("GET /keys/{key}"))
    if id == user_id(context.caller):
        raise Refusal(409, _OWN, hint=_KEYS)
    item = context.ports.objects.get("user", id)
    if item is None:
        raise not_found("User", id)
    return item


def _by_address(context: RequestContext, email: str) -> Item | None:
    return next(
        (stored_user for stored_user in _stored_users(context) if stored_user.spec["email"].lower() == email.lower()),
        None,
    )


def _groups(context: RequestContext, one: Mapping[str, Any]) -> Mapping[str, str]:
    item = context.ports.objects.get("user", str(one["id"]))
    groups: Mapping[str, str] = item.spec["groups"] if item else {}
    return groups


def _member(context: RequestContext, one: dict[str, Any], group: str) -> dict[str, Any]:
    """Return the document of a user with the role in the group."""
    return {**one, "role": _groups(context, one).get(group, one["role"])}


def _invited(context: RequestContext, item: Item) -> dict[str, Any]:
    """Return an invited person for the API: verified, and active, once a key with that address as its name has been
    used."""
    spec, key = item.spec, _key(context, item.spec["email"])
    used = max((s.last_used for s in key.secrets if s.last_used), default=None) if key else None
    return {
        "id": item.name,
        "email": spec["email"],
        "given_name": spec["given_name"],
        "family_name": spec["family_name"],
        "verified": used is not None,
        "invited": used is None,
        "picture": spec.get("picture"),
        "phone": spec.get("phone"),
        "logged_in_at": instant(used),
        "created_at": instant(item.created),
        "active": key is not None,
        "role": spec.get("role"),
    }


def _key(context: RequestContext, email: str) -> ApiKey | None:
    return context.ports.store.api_keys.named(email)
