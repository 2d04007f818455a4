"""API keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Request
from starlette.responses import Response

from instep.errors import InstepError
from instep.operations.spec import Role
from instep.server.access import CallerDep, ServerDep
from instep.server.context import ServerContext
from instep.server.models import Page, ResponseModel
from instep.server.paging import Cursor, Limit, paged, place
from instep.server.problems import unknown
from instep.server.responses import name, router
from instep.server.writes import tagged
from instep.store.server.api_keys import ApiKey


class Me(ResponseModel):
    id: str
    name: str
    role: Role
    groups: list[str]


class SecretOut(ResponseModel):
    prefix: str
    created: datetime
    expires: datetime | None
    last_used: datetime | None


class KeyOut(ResponseModel):
    """`ended`: since when it is refused."""

    id: str
    name: str
    role: Role
    groups: list[str]
    created: datetime
    created_by: str
    ended: datetime | None
    ended_by: str
    secrets: list[SecretOut]


routes = router("keys")
KeyId = Annotated[str, name("A key's id, k-...")]


@routes.get("/me", response_model=Me)
def get_me(who: CallerDep) -> ApiKey:
    """The key of this request."""
    return who.key


@routes.get("/keys", response_model=Page[KeyOut])
def list_keys(who: CallerDep, the: ServerDep, limit: Limit = 100, cursor: Cursor = None) -> Any:
    """By id."""
    behind = place(cursor, str)
    found = the.store.api_keys.page(behind[0] if behind else "", limit + 1)
    return paged(found, limit, lambda one: (one.id,), KeyOut.model_validate)


@routes.get("/keys/{key}", response_model=KeyOut)
def get_key(request: Request, who: CallerDep, the: ServerDep, key: KeyId) -> Response:
    return tagged(request, key_document(the, key))


def key_document(the: ServerContext, key: str) -> dict[str, Any]:
    """Return a key as it is read, and as its ETag goes by; Problem 404 if there is none."""
    try:
        return KeyOut.model_validate(the.store.api_keys.get(key)).model_dump(mode="json")
    except InstepError:
        raise unknown("key", key) from None
