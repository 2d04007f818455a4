"""What a connection's schemas were."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import Field

from instep.control import schema_history
from instep.schema.catalog.catalog import catalog_to_dict
from instep.server.access import CallerDep, ServerDep
from instep.server.models import Page, ResponseModel
from instep.server.paging import Cursor, Limit, paged, place
from instep.server.problems import unknown
from instep.server.responses import ConnectionName, router


class VersionOut(ResponseModel):
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


class CopyOut(ResponseModel):
    number: int
    table: list[str] = Field(description="The accepted table that it was.")
    place: list[str] = Field(description="Namespace and name at the destination.")
    why: str
    rows: int
    at: datetime


class SchemaDocument(Schema):
    """`identity`: of the source's server, as far as it tells one."""

    identity: str
    copies: list[CopyOut]


routes = router("schemas")
OfSide = Annotated[schema_history.Side, Query(description="Whose schema.")]


@routes.get("/connections/{connection}/history", response_model=Page[VersionOut])
def list_versions(
    who: CallerDep,
    the: ServerDep,
    connection: ConnectionName,
    side: OfSide = "accepted",
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Any:
    """Newest first."""
    behind = place(cursor, int)
    known = schema_history.versions(the.store, the.connection(who, connection), side)[::-1]
    found = [v for v in known if behind is None or v.version < behind[0]]
    return paged(found[: limit + 1], limit, lambda one: (one.version,), VersionOut.model_validate)


@routes.get("/connections/{connection}/history/{version}", response_model=Schema)
def get_version(
    who: CallerDep,
    the: ServerDep,
    connection: ConnectionName,
    version: Annotated[int, Path(ge=0, le=2**31 - 1)],
    side: OfSide = "accepted",
) -> Any:
    """The schema that it was."""
    for found in schema_history.versions(the.store, the.connection(who, connection), side):
        if found.version == version:
            return {**asdict(found), "catalog": catalog_to_dict(schema_history.catalog_of(the.store, found))}
    raise unknown("version", str(version))
