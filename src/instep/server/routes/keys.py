"""API keys."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Request
from pydantic import Field
from starlette.responses import Response

from instep.control.resources import api_keys
from instep.errors import InstepError
from instep.operations.spec import Role
from instep.server.access import CallerDep, ServerDep
from instep.server.context import ServerContext
from instep.server.models import DryRunResult, NameList, Page, RequestModel, ResponseModel
from instep.server.paging import Cursor, Limit, paged, place
from instep.server.problems import unknown
from instep.server.responses import REHEARSED, name, router
from instep.server.writes import Matched, WriteAnswer, Writes, tagged
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


class NewKey(RequestModel):
    """`groups`: tags of the connections that it is for, none for all; `days`: how long it lasts."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    role: Role
    groups: NameList = Field([])
    days: Annotated[int, Field(ge=1, le=3650)] | None = None


class Rotation(RequestModel):
    """`overlap_hours`: how long the old secret still works."""

    overlap_hours: Annotated[int, Field(ge=0, le=24 * 90)] = 168
    days: Annotated[int, Field(ge=1, le=3650)] | None = None


class IssuedOut(DryRunResult):
    """`secret` is told once; null where nothing was issued or it was told before."""

    key: KeyOut
    secret: str | None


class Revoked(DryRunResult):
    key: KeyOut


routes = router("keys")
_ISSUED: dict[int | str, dict[str, Any]] = {200: {"model": IssuedOut, "description": REHEARSED}}
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
    return tagged(request, _document(_known(the, key)))


@routes.post("/keys", status_code=201, response_model=IssuedOut, responses=_ISSUED)
def create(the: ServerDep, who: CallerDep, asked: NewKey, writes: Writes) -> Response:
    """Its secret is told in this answer and never again."""

    def do() -> WriteAnswer:
        lasts = timedelta(days=asked.days) if asked.days is not None else None
        issued = api_keys.create(the.store, asked.name, asked.role, who.who, groups=asked.groups, lasts=lasts)
        return _issued(issued, 201, writes.dry_run)

    return writes.run("key.create", asked.name, do)


@routes.post("/keys/{key}/rotate", status_code=201, response_model=IssuedOut, responses=_ISSUED)
def rotate(the: ServerDep, who: CallerDep, key: KeyId, asked: Rotation, writes: Matched) -> Response:
    """Another secret; the one before it still works for a while."""

    def do() -> WriteAnswer:
        writes.check(_document(_known(the, key)))
        lasts = timedelta(days=asked.days) if asked.days is not None else None
        issued = api_keys.rotate(the.store, key, overlap=timedelta(hours=asked.overlap_hours), lasts=lasts)
        return _issued(issued, 201, writes.dry_run)

    return writes.run("key.rotate", key, do)


@routes.delete("/keys/{key}", response_model=Revoked)
def revoke(the: ServerDep, who: CallerDep, key: KeyId, writes: Matched) -> Response:
    """Refused from now on."""

    def do() -> WriteAnswer:
        found = _known(the, key)
        writes.check(_document(found))
        return WriteAnswer({"key": _document(api_keys.revoke(the.store, key, who.who))}, detail={"name": found.name})

    return writes.run("key.revoke", key, do)


def _issued(issued: api_keys.Issued, status: int, dry_run: bool) -> WriteAnswer:
    """A rehearsed secret would open nothing: it is not told."""
    document, found = _document(issued.key), issued.key
    detail = {"key": found.id, "name": found.name, "role": found.role, "groups": list(found.groups)}
    told = {"key": document, "secret": None if dry_run else issued.secret}
    return WriteAnswer(told, status, detail, kept={"key": document, "secret": None})


def _known(the: ServerContext, key: str) -> ApiKey:
    try:
        return the.store.api_keys.get(key)
    except InstepError:
        raise unknown("key", key) from None


def _document(key: ApiKey) -> dict[str, Any]:
    """As its ETag goes by: when it was used is not part of what it is."""
    return KeyOut.model_validate(key).model_dump(mode="json")
