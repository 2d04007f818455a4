"""The state of a connection whose connector keeps one: what its next sync begins from."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from instep.server.fivetran_api.connection import MOVES
from instep.server.fivetran_api.http.envelope import Refusal, success
from instep.server.fivetran_api.http.models import StateOut
from instep.server.fivetran_api.http.request_body import RequestBody, parse
from instep.server.fivetran_api.http.request_context import RequestContext
from instep.server.fivetran_api.http.route import Body, Name, RequestContextDep, route_options
from instep.store.catalogs.airbyte_states import BESIDE_ROWS, changed_state, repeating_streams, state_problem
from instep.suggest import first_of

router = APIRouter(prefix="/connections/{id}")


class StateBody(RequestBody):
    """An object, as the connector saves it."""

    state: dict[str, Any]


@router.get("/state", **route_options(StateOut))
def state(id: Name, context: RequestContextDep) -> JSONResponse:
    beside = _parts_beside(context, id)
    stored = context.ports.store.connectors.get(id)
    if stored.at is None:
        raise Refusal(400, f"Connection '{id}' has no state yet: no sync of it has saved one.")
    return success(data={"state": {name: value for name, value in stored.state.items() if name not in beside}})


@router.patch("/state", **route_options(StateOut, takes=StateBody))
def change(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    """Replace a connector's state; its next sync begins from there. Conflict while a run is alive."""
    beside = _parts_beside(context, id)
    parsed = parse(StateBody, body)
    state: dict[str, Any] = body["state"]  # as it is: null is a value there
    if beside and (problem := state_problem(state)):
        hint = f"begin with the state that GET /v1/connections/{id}/state answers, or with {{}} to read all again"
        raise Refusal(400, f"The state of connection '{id}' cannot be read: {problem}.", hint=hint)
    store = context.ports.store
    with context.write(body, depth=1):
        if any(j.kind in MOVES and j.status == "running" for j in context.ports.jobs.unfinished([id]).get(id, ())):
            raise Refusal(409, f"Connection '{id}' is syncing: its state is saved by the sync.")
        if id not in store.pauses.paused_connections([id]):
            raise Refusal(409, f"Connection '{id}' has to be paused before its state can be set.")
        store.runs.check_idle(id)
        known = store.connectors.get(id).state
        state = changed_state(known, state) if beside else state
        store.connectors.save(id, state)
    shown = {name: value for name, value in state.items() if name not in beside}
    message = parsed.remark(f"The state of connection '{id}' has been updated")
    if repeating := repeating_streams(known, state) if beside else []:
        message = f"{message.removesuffix('.')}. {_repeats(repeating)}"
    return success(message, {"state": shown})


_NAMED = 5
"""Streams that a message names."""


def _repeats(streams: list[str]) -> str:
    return (
        f"If this state is an earlier one, records of {first_of(streams, _NAMED)} come again as new rows, "
        "because these streams have no key: leave them out of the state instead, so that their rows are replaced"
    )


def _parts_beside(context: RequestContext, id: str) -> tuple[str, ...]:
    """Return the parts of the state that are not about rows: a configuration has secrets, so that nobody is shown it or
    sets it here. Raise Refusal for a connection that has no state."""
    item = context.connection(id)
    if item.kind != "foreign":
        project = context.ports.project(id)
        match project.model.sources[project.source_of(id)].type:
            case "connector":
                return ()
            case "airbyte":
                return BESIDE_ROWS
    raise Refusal(405, f"The service of connection '{id}' has no state that could be read or set.")
