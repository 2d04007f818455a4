"""What a connection's schemas were."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Path, Query

from instep.api.access import The, Who
from instep.api.common import ConnectionName, router
from instep.api.paging import Cursor, Limit, paged, place
from instep.api.problems import unknown
from instep.api.wire.base import Page
from instep.api.wire.schemas import Schema, VersionOut
from instep.control import history
from instep.schema.table import catalog_to_dict

routes = router("schemas")
OfSide = Annotated[history.Side, Query(description="Whose schema.")]


@routes.get("/connections/{connection}/history", response_model=Page[VersionOut])
def list_versions(
    who: Who, the: The, connection: ConnectionName, side: OfSide = "accepted", limit: Limit = 100, cursor: Cursor = None
) -> Any:
    """Newest first."""
    behind = place(cursor, int)
    known = history.versions(the.store, the.connection(who, connection), side)[::-1]
    found = [v for v in known if behind is None or v.version < behind[0]]
    return paged(found[: limit + 1], limit, lambda one: (one.version,), VersionOut.model_validate)


@routes.get("/connections/{connection}/history/{version}", response_model=Schema)
def get_version(
    who: Who,
    the: The,
    connection: ConnectionName,
    version: Annotated[int, Path(ge=0, le=2**31 - 1)],
    side: OfSide = "accepted",
) -> Any:
    """The schema that it was."""
    for found in history.versions(the.store, the.connection(who, connection), side):
        if found.version == version:
            return {**asdict(found), "catalog": catalog_to_dict(history.catalog_of(the.store, found))}
    raise unknown("version", str(version))
