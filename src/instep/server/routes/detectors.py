"""The scheduled detector of a connection: how it stands, and switching it on again."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from fastapi import Request
from starlette.responses import Response

from instep.control.detector import DetectorStatus, standing, switch_on
from instep.model import Job
from instep.server.access import CallerDep, ServerDep
from instep.server.context import ServerContext
from instep.server.models import DryRunResult, RequestModel, ResponseModel, Text
from instep.server.responses import ConnectionName, router
from instep.server.writes import Matched, WriteAnswer, tagged


class EnableDetectorRequest(RequestModel):
    why: Text = ""


class DetectionOut(ResponseModel):
    """One detection. `counts`: new, deleted, updated and unchanged by level, once it has looked."""

    job: str
    status: str
    why: str
    triggered_by_error: bool
    ended: datetime | None
    error: str
    counts: dict[str, dict[str, int]]


class DetectorOut(ResponseModel):
    """`frequency` in seconds; `state` processing: a detection runs. `reason` says why it has switched itself off.
    `options` of the source as a whole and of `tables` by pattern, as far as they are said."""

    connection: str
    state: Literal["processing", "queued", "scheduled", "off", "internal_disabled"]
    enabled: bool
    frequency: int
    internal_disabled_detect_schema_changes: bool
    reason: str
    next_due: datetime | None
    current: DetectionOut | None
    last: DetectionOut | None
    options: dict[str, Any]
    tables: dict[str, dict[str, Any]]


class Enabled(DryRunResult):
    """`changed` false: it had not switched itself off."""

    changed: bool
    detector: DetectorOut


routes = router("connections")


@routes.get("/connections/{connection}/detector", response_model=DetectorOut)
def get_detector(request: Request, the: ServerDep, who: CallerDep, connection: ConnectionName) -> Response:
    """Whether it runs, waits, is off, or has switched itself off and why; what the last detection has counted."""
    return tagged(request, _shown(the, the.connection(who, connection)))


@routes.post("/connections/{connection}/detector/enable", response_model=Enabled)
def enable_detector(
    the: ServerDep, who: CallerDep, connection: ConnectionName, asked: EnableDetectorRequest, writes: Matched
) -> Response:
    """After it has switched itself off. Refused while the connection is paused: what it was off for is decided
    first."""
    name = the.connection(who, connection)

    def do() -> WriteAnswer:
        writes.check(_shown(the, name))
        changed = switch_on(the.store, name, writes.caller.who)
        return WriteAnswer({"changed": changed, "detector": _shown(the, name)}, detail=asked.model_dump())

    return writes.run("detector.enable", name, do)


def _shown(the: ServerContext, name: str) -> dict[str, Any]:
    return _detector(standing(the.store, the.project, name)).model_dump(mode="json")


def _detector(found: DetectorStatus) -> DetectorOut:
    return DetectorOut(
        connection=found.connection,
        state=found.state,
        enabled=found.enabled,
        frequency=found.frequency,
        internal_disabled_detect_schema_changes=found.internal_disabled,
        reason=found.reason,
        next_due=found.next_due,
        current=_detection(found.job),
        last=_detection(found.last),
        options=dict(found.options),
        tables={pattern: dict(said) for pattern, said in found.tables.items()},
    )


def _detection(job: Job | None) -> DetectionOut | None:
    if job is None:
        return None
    return DetectionOut(
        job=job.id,
        status=job.status,
        why=job.why,
        triggered_by_error=bool(job.options.get("triggered_by_error")),
        ended=job.ended,
        error=job.error,
        counts=job.result.get("counts", {}),
    )
