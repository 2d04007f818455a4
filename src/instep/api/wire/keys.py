"""Documents of API keys and of the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from instep.api.wire.base import Asked, Dry, Few, Said
from instep.operations.spec import Role


class Me(Said):
    id: str
    name: str
    role: Role
    groups: list[str]


class SecretOut(Said):
    prefix: str
    created: datetime
    expires: datetime | None
    last_used: datetime | None


class KeyOut(Said):
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


class NewKey(Asked):
    """`groups`: tags of the connections that it is for, none for all; `days`: how long it lasts."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    role: Role
    groups: Few = Field([])
    days: Annotated[int, Field(ge=1, le=3650)] | None = None


class Rotation(Asked):
    """`overlap_hours`: how long the old secret still works."""

    overlap_hours: Annotated[int, Field(ge=0, le=24 * 90)] = 168
    days: Annotated[int, Field(ge=1, le=3650)] | None = None


class IssuedOut(Dry):
    """`secret` is told once; null where nothing was issued or it was told before."""

    key: KeyOut
    secret: str | None


class Revoked(Dry):
    key: KeyOut


class AuditOut(Said):
    number: int
    at: datetime
    actor: str
    action: str
    target: str
    detail: dict[str, Any]
    previous: str
    digest: str


class ChainOut(Said):
    """`broken` is empty if every entry follows the one before it. Note `entries` and `head` elsewhere: entries that
    are taken away at the end show only by them."""

    entries: int
    head: str
    broken: str
