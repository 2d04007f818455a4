"""The status of connections and their tables."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from fastapi.encoders import jsonable_encoder

from instep.control.selection.reselected import decided
from instep.server import resources
from instep.server.access import CallerDep, ServerDep
from instep.server.context import ServerContext
from instep.server.models import Page
from instep.server.paging import Cursor, paged, place
from instep.server.responses import ConnectionName, router

routes = router("standing")
NameList = Annotated[int, Query(ge=1, le=100, description="Maximum number of items per page.")]


@routes.get("/connections/{connection}/status", response_model=dict[str, Any])
def get_status(who: CallerDep, the: ServerDep, connection: ConnectionName) -> Any:
    """Return a connection's last run, pauses, open changes, last result per table, pending backfills and quarantine
    counts. The state of a CDC log is not included, because the server opens no source."""
    [found] = _statuses(the, [the.connection(who, connection)])
    return jsonable_encoder(found)


def _statuses(the: ServerContext, names: list[str]) -> list[dict[str, Any]]:
    """By as many statements as for one connection."""
    from instep.sync.status import statuses

    project = the.project.among(names)
    chosen = decided(project, the.store, names)
    return [
        {**chosen[one["connection"]], **one, "log": None}
        for one in statuses(project, the.store, names, the.app.sync_context)
    ]


@routes.get("/status", response_model=Page[dict[str, Any]])
def list_status(who: CallerDep, the: ServerDep, limit: NameList = 50, cursor: Cursor = None) -> Any:
    """List the status of every connection, by name."""
    behind = place(cursor, str)
    names = [
        one.name for one in resources.page(the, who, "connection", after=behind[0] if behind else "", limit=limit + 1)
    ]
    found = paged(names, limit, lambda one: (one,), lambda one: one)
    return jsonable_encoder({**found, "items": _statuses(the, found["items"])})
