"""Users: each key is shown as the one user that it is."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from instep.api.compat.envelope import not_found, page, success
from instep.api.compat.ports import Caller
from instep.api.compat.route import Asked, Name

router = APIRouter()
_ROLES = {
    "viewer": "Account Reviewer", "operator": "Account Operator", "approver": "Account Analyst",
    "admin": "Account Administrator",
}  # fmt: skip


@router.get("/users")
def users(desk: Asked) -> JSONResponse:
    return page("Users retrieved successfully", [user(desk.caller)], None)


@router.get("/users/{id}")
def one(id: Name, desk: Asked) -> JSONResponse:
    if id != desk.caller.name:
        raise not_found("User", id)
    return success("", user(desk.caller))


@router.get("/account/info")
def account(desk: Asked) -> JSONResponse:
    return success("", {"account_id": "instep", "account_name": "instep", "user_id": desk.caller.name})


def user(caller: Caller) -> dict[str, Any]:
    return {
        "id": caller.name, "email": caller.name, "given_name": caller.name, "family_name": "", "verified": True,
        "invited": False, "picture": None, "phone": None, "logged_in_at": None, "created_at": None,
        "active": True, "role": _ROLES[caller.role],
    }  # fmt: skip
