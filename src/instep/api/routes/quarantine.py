"""Values and rows that did not fit, as a connection's destination holds them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query
from starlette.responses import Response

from instep.api.access import The, Who
from instep.api.common import ConnectionName, router
from instep.api.paging import Cursor, Limit, paged, place
from instep.api.problems import Problem
from instep.api.routes.work import STARTED, ask
from instep.api.wire.quarantine import Discarding, Erasing, HeldOut, HeldPage, Matches, Matching, Replaying
from instep.api.wire.work import JobOut
from instep.api.writes import Writes

if TYPE_CHECKING:
    from instep.stage.entries import Entry
    from instep.sync.held.quarantine import Holding

routes = router("quarantine")


@routes.get("/connections/{connection}/quarantine", response_model=HeldPage)
def list_held(
    who: Who,
    the: The,
    connection: ConnectionName,
    limit: Limit = 100,
    cursor: Cursor = None,
    table: Annotated[str | None, Query(max_length=500, description="schema.table")] = None,
    every: Annotated[bool, Query(alias="all", description="Also those that are settled.")] = False,
) -> Any:
    """By table and id."""
    from instep.sync.held.quarantine import holdings

    pipe = the.app.pipe(the.connection(who, connection))
    behind = place(cursor, str, str)
    found = list(holdings(pipe, [table] if table is not None else []))
    entries = sorted((_held(h, e) for h in found for e in h.found.entries if every or e.status == "held"), key=_place)
    left = [one for one in entries if behind is None or _place(one) > (behind[0], behind[1])]
    broken = [f"{h.table.path}: {name}" for h in found for name in h.found.broken]
    return {**paged(left[: limit + 1], limit, _place, lambda one: one), "unreadable": broken}


@routes.post("/connections/{connection}/quarantine/replay", status_code=202, response_model=JobOut, responses=STARTED)
def replay_held(the: The, who: Who, connection: ConnectionName, asked: Replaying, writes: Writes) -> Response:
    """What fits by now is written into its rows, unless a newer value is there. The job's result counts it by table."""
    return ask(the, writes, the.connection(who, connection), "replay", asked.model_dump(exclude={"why"}), asked.why)


@routes.post("/connections/{connection}/quarantine/discard", status_code=202, response_model=JobOut, responses=STARTED)
def discard_held(the: The, who: Who, connection: ConnectionName, asked: Discarding, writes: Writes) -> Response:
    """Deletes originals for good; the rows stay as they are."""
    if not (asked.tables or asked.ids):
        raise Problem(422, "invalid", "nothing is named to be discarded", "send tables or ids")
    return ask(the, writes, the.connection(who, connection), "discard", asked.model_dump(exclude={"why"}), asked.why)


@routes.post("/connections/{connection}/quarantine/matches", response_model=Matches)
def match_held(the: The, who: Who, connection: ConnectionName, asked: Matching) -> Any:
    """The ids of what is held of a row, settled entries too; 409 while a run of the connection is alive, which may hold
    more of it. Nothing is written, and the key is kept nowhere: not in an address, not in the audit log."""
    from instep.sync.held.quarantine import of_row

    return {"ids": of_row(the.app.pipe(the.connection(who, connection)), asked.table, asked.key)}


@routes.post("/connections/{connection}/quarantine/erase", status_code=202, response_model=JobOut, responses=STARTED)
def erase_held(the: The, who: Who, connection: ConnectionName, asked: Erasing, writes: Writes) -> Response:
    """Removes every trace of entries, where a discarded one is remembered without its original. The job's result counts
    them as `erased`."""
    return ask(the, writes, the.connection(who, connection), "erase", asked.model_dump(exclude={"why"}), asked.why)


def _place(one: HeldOut) -> tuple[str, str]:
    return one.table, one.id


def _held(holding: Holding, entry: Entry) -> HeldOut:
    """The table is called as it is called now; a whole row is an object."""
    original: Any = entry.original
    if not entry.column and original is not None:
        original = json.loads(original)
    names = ("id", "column", "reason", "place", "change", "rule", "run", "since", "at", "status")
    said = {name: getattr(entry, name) for name in names}
    return HeldOut(**said, table=holding.table.path, key=json.loads(entry.key), original=original)
