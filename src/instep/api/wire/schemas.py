"""Documents of schemas, and of schemas as of a time."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from instep.api.wire.base import Said


class VersionOut(Said):
    """`version` counts on its side; `label` is the accepted version's major.minor at that time."""

    connection: str
    side: Literal["source", "accepted", "destination"]
    version: int
    at: datetime
    accepted: int
    label: str
    run: str
    who: str
    why: str


class Schema(VersionOut):
    catalog: dict[str, Any]


class CopyOut(Said):
    number: int
    table: list[str] = Field(description="The accepted table that it was.")
    place: list[str] = Field(description="Namespace and name at the destination.")
    why: str
    rows: int
    at: datetime


class SchemaAt(Schema):
    """`identity`: of the source's server, as far as it tells one."""

    identity: str
    copies: list[CopyOut]
