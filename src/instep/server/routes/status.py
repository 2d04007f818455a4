"""What stands: a connection with its tables, its schema as of any time, the way of one table or column."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query
from fastapi.encoders import jsonable_encoder

from instep.control import schema_history
from instep.control.object_history import trail
from instep.control.selection.reselected import decided
from instep.schema.catalog.catalog import catalog_to_dict
from instep.server import resources
from instep.server.access import CallerDep, ServerDep
from instep.server.context import ServerContext
from instep.server.models import Page
from instep.server.paging import Cursor, paged, place
from instep.server.responses import ConnectionName, router
from instep.server.routes.schemas import SchemaDocument

routes = router("standing")
NameList = Annotated[int, Query(ge=1, le=100, description="The most items of a page.")]


@routes.get("/connections/{connection}/status", response_model=dict[str, Any])
def get_status(who: CallerDep, the: ServerDep, connection: ConnectionName) -> Any:
    """Last run, pauses, waiting changes, how each table fared last, backfills that are wanted, what is held. Without
    the state of a source's log: the server opens no source."""
    [found] = _statuses(the, [the.connection(who, connection)])
    return jsonable_encoder(found)


def _statuses(the: ServerContext, names: list[str]) -> list[dict[str, Any]]:
    """By as many statements as for one connection."""
    from instep.sync.status import statuses

    project = the.project.among(names)
    chosen = decided(project, the.store, names)
    return [
        {**chosen[one["connection"]], **one, "log": None} for one in statuses(project, the.store, names, the.app.pipe)
    ]


@routes.get("/status", response_model=Page[dict[str, Any]])
def list_status(who: CallerDep, the: ServerDep, limit: NameList = 50, cursor: Cursor = None) -> Any:
    """Of every connection, by name."""
    behind = place(cursor, str)
    names = [
        one.name for one in resources.page(the, who, "connection", after=behind[0] if behind else "", limit=limit + 1)
    ]
    found = paged(names, limit, lambda one: (one,), lambda one: one)
    return jsonable_encoder({**found, "items": _statuses(the, found["items"])})


@routes.get("/connections/{connection}/schema", response_model=SchemaDocument)
def get_schema(
    who: CallerDep,
    the: ServerDep,
    connection: ConnectionName,
    side: Annotated[schema_history.Side, Query(description="Whose schema.")] = "accepted",
    at: Annotated[str | None, Query(max_length=50, description="A time (ISO 8601), or a version: 7 or 2.1.")] = None,
) -> Any:
    """As it is, or as it was then; with the copies that are kept beside its tables, if it is the schema of now."""
    name = the.connection(who, connection)
    when = schema_history.moment(at) if at is not None else None
    version = schema_history.version_at(the.store, name, side, when)
    copies = the.store.copies.standing(name) if at is None and side != "source" else []
    catalog = catalog_to_dict(schema_history.catalog_of(the.store, version))
    return {**asdict(version), "catalog": catalog, "copies": [asdict(c) for c in copies]}


@routes.get("/connections/{connection}/trail", response_model=dict[str, Any])
def get_trail(
    who: CallerDep,
    the: ServerDep,
    connection: ConnectionName,
    of: Annotated[str, Query(min_length=1, max_length=500, description="schema.table or schema.table.column")],
) -> Any:
    """What one table or column was called, and all that changed about it, oldest first."""
    return jsonable_encoder(asdict(trail(the.store, the.connection(who, connection), of)))
