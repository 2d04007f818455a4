"""Syncs and detections of connections, which a worker does."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends
from starlette.responses import Response

from instep.operations.everyday.detect import DetectRequest
from instep.operations.everyday.sync import SyncRequest
from instep.server.access import CallerDep, ConnectionName, ServerDep, router
from instep.server.context import ServerContext
from instep.server.models import JobOut
from instep.server.requests import requested
from instep.server.routes.jobs import STARTED, check_drop, located, wait_for_second
from instep.server.writes import Write, WriteAnswer, Writes

routes = router("connections")


@routes.post("/connections/{connection}/sync", status_code=202, response_model=JobOut, responses=STARTED)
def sync(
    server: ServerDep,
    who: CallerDep,
    connection: ConnectionName,
    body: Annotated[SyncRequest, Depends(requested(SyncRequest))],
    writes: Writes,
) -> Response:
    """Start a sync. Returns 202 with a new job, or 200 with the one that is already queued or running. `drop_retained`
    and `drop_columns` drop columns and require the role approver; with four_eyes the first person's request to drop a
    column is answered with 409, and the same request of a second person within a week is carried out."""
    name = server.connection(who, connection)
    if body.drop_retained:
        check_drop(who, "drop_retained")
    if body.drop_columns:
        check_drop(who, "drop_columns")
    if (waits := _alone(server, writes, name, body)) is not None:
        return waits
    return _work(server, writes, name, "sync", body.options(), body.why)


def _alone(server: ServerContext, writes: Write, name: str, body: SyncRequest) -> Response | None:
    """Return the refusal for the first person who drops columns, where that takes two people."""
    from instep.sync.two_people import drop_named_act, drop_retained_act

    if not (server.project.model.four_eyes and (body.drop_retained or body.drop_columns)):
        return None
    accepted = server.store.accepted.catalog(name)
    acts = (
        drop_retained_act(name, accepted, body.tables) if body.drop_retained else None,
        drop_named_act(name, accepted, body.drop_columns),
    )
    waits = [wait_for_second(server, writes, act, "connection.sync") for act in acts if act]
    return next((one for one in waits if one is not None), None)


@routes.post("/connections/{connection}/detect", status_code=202, response_model=JobOut, responses=STARTED)
def detect(
    server: ServerDep,
    who: CallerDep,
    connection: ConnectionName,
    body: Annotated[DetectRequest, Depends(requested(DetectRequest))],
    writes: Writes,
) -> Response:
    """Start a detection. Returns 202 with a new job, or 200 with the one that is already queued or running."""
    return _work(server, writes, server.connection(who, connection), "detect", {}, body.why)


def _work(server: ServerContext, writes: Write, name: str, kind: str, options: dict[str, Any], why: str) -> Response:
    def do() -> WriteAnswer:
        queued = server.queue.enqueue(name, kind, options=options, who=writes.caller.who)
        return WriteAnswer(vars(queued), 202 if queued.fresh else 200, {"job": queued.id, **options, "why": why})

    return located(writes.run(f"connection.{kind}", name, do))
