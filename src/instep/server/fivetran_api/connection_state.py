"""The state of a connection whose connector keeps one: what its next sync begins from."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from instep.server.fivetran_api.connection import MOVES
from instep.server.fivetran_api.http.envelope import Refusal, success
from instep.server.fivetran_api.http.models import StateOut
from instep.server.fivetran_api.http.request_body import Wire, parse
from instep.server.fivetran_api.http.request_context import RequestContext
from instep.server.fivetran_api.http.route import Body, Name, RequestContextDep, says

router = APIRouter(prefix="/connections/{id}")


class StateBody(Wire):
    """An object, as the connector saves it."""

    state: dict[str, Any]


@router.get("/state", **says(StateOut))
def state(id: Name, context: RequestContextDep) -> JSONResponse:
    _check(context, id)
    found = context.ports.store.connectors.get(id)
    if found.at is None:
        raise Refusal(400, f"Connection '{id}' has no state yet: no sync of it has saved one.")
    return success(data={"state": found.state})


@router.patch("/state", **says(StateOut, takes=StateBody))
def change(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    """Replace a connector's state; its next sync begins from there. Conflict while a run is alive."""
    _check(context, id)
    parsed = parse(StateBody, body)
    state: dict[str, Any] = body["state"]  # as it is: null is a value there
    store = context.ports.store
    with context.write(body, depth=1):
        if any(j.kind in MOVES and j.status == "running" for j in context.ports.jobs.unfinished([id]).get(id, ())):
            raise Refusal(409, f"Connection '{id}' is syncing: its state is saved by the sync.")
        if id not in store.pauses.whole([id]):
            raise Refusal(409, f"Connection '{id}' has to be paused before its state can be set.")
        store.connectors.save(id, state)
    return success(parsed.remark(f"The state of connection '{id}' has been updated"), {"state": state})


def _check(context: RequestContext, id: str) -> None:
    item = context.connection(id)
    if item.kind != "foreign":
        project = context.ports.project(id)
        if project.model.sources[project.source_of(id)].type == "connector":
            return
    raise Refusal(405, f"The service of connection '{id}' has no state that could be read or set.")
