"""Values and rows that did not fit, as a connection's destination holds them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query
from pydantic import Field

from instep.server.access import CallerDep, ServerDep
from instep.server.models import Name, Page, RequestModel, ResponseModel
from instep.server.paging import Cursor, Limit, paged, place
from instep.server.responses import ConnectionName, router

if TYPE_CHECKING:
    from instep.stage.entries import QuarantineEntry
    from instep.sync.quarantine.quarantine import Holding


class QuarantinedDocument(ResponseModel):
    """A quarantined value or row. Originals of hashed and excluded columns are left out."""

    id: str
    table: str
    column: str
    key: Any
    original: Any
    reason: str
    place: str
    change: str
    rule: str
    run: str
    since: Any
    at: Any
    status: str


class QuarantinePage(Page[QuarantinedDocument]):
    unreadable: list[str]


class Matching(RequestModel):
    """Rows of `table` (schema.table) with this `key`: the values by column as text, as the quarantine stores them; null
    for NULL."""

    table: Name
    key: Annotated[dict[Name, Annotated[str, Field(max_length=10_000)] | None], Field(min_length=1, max_length=100)]


class Matches(ResponseModel):
    ids: list[str]


routes = router("quarantine")


@routes.get("/connections/{connection}/quarantine", response_model=QuarantinePage)
def list_held(
    who: CallerDep,
    the: ServerDep,
    connection: ConnectionName,
    limit: Limit = 100,
    cursor: Cursor = None,
    table: Annotated[str | None, Query(max_length=500, description="schema.table")] = None,
    every: Annotated[bool, Query(alias="all", description="Also replayed, superseded and discarded entries.")] = False,
) -> Any:
    """List quarantine entries by table and id."""
    from instep.sync.quarantine.quarantine import holdings

    context = the.app.sync_context(the.connection(who, connection))
    behind = place(cursor, str, str)
    found = list(holdings(context, [table] if table is not None else []))
    entries = sorted((_held(h, e) for h in found for e in h.found.entries if every or e.status == "held"), key=_place)
    left = [one for one in entries if behind is None or _place(one) > (behind[0], behind[1])]
    broken = [f"{h.table.path}: {name}" for h in found for name in h.found.broken]
    return {**paged(left[: limit + 1], limit, _place, lambda one: one), "unreadable": broken}


@routes.post("/connections/{connection}/quarantine/matches", response_model=Matches)
def match_held(the: ServerDep, who: CallerDep, connection: ConnectionName, asked: Matching) -> Any:
    """Return the ids of all quarantine entries of a row, including settled ones. Answers 409 while a run of the
    connection is active, because it may quarantine more of the row. Nothing is written, and the key is stored nowhere,
    neither in a URL nor in the audit log."""
    from instep.sync.quarantine.quarantine import of_row

    return {"ids": of_row(the.app.sync_context(the.connection(who, connection)), asked.table, asked.key)}


def _place(one: QuarantinedDocument) -> tuple[str, str]:
    return one.table, one.id


def _held(holding: Holding, entry: QuarantineEntry) -> QuarantinedDocument:
    """The table is called as it is called now; a whole row is an object."""
    original: Any = entry.original
    if not entry.column and original is not None:
        original = json.loads(original)
    names = ("id", "column", "reason", "place", "change", "rule", "run", "since", "at", "status")
    said = {name: getattr(entry, name) for name in names}
    return QuarantinedDocument(**said, table=holding.table.path, key=json.loads(entry.key), original=original)
