"""Connections as the API shows them, whole or many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from instep.control import pauses
from instep.control.resources.resources import Managed
from instep.errors import ProjectError
from instep.model import Run
from instep.server import resources
from instep.server.context import Caller, ServerContext
from instep.server.models import ResponseModel


class ConnectionOut(ResponseModel):
    """`status` is processing (a detection runs), paused, running, failing, waiting (for a person), idle, or new (never
    run)."""

    name: str
    source: str
    destination: str
    namespace: str
    policy: str
    tags: list[str]
    status: Literal["processing", "paused", "running", "failing", "waiting", "idle", "new"]
    waiting: int = Field(description="Open changes that wait for a person.")
    last_run: Run | None
    managed_by: Literal["file", "server"]


class PauseOut(ResponseModel):
    reason: str
    since: datetime
    change: str
    table: str | None


class ConnectionWithPauses(ConnectionOut):
    pauses: list[PauseOut]


def whole(the: ServerContext, who: Caller, name: str) -> dict[str, Any]:
    """The connection as it is read, and as its ETag goes by."""
    [one] = shown(the, [resources.known(the, who, "connection", name)])
    return {**one.model_dump(mode="json"), "pauses": pauses_of(the, name)}


def pauses_of(the: ServerContext, name: str) -> list[dict[str, Any]]:
    return [PauseOut.model_validate(found).model_dump(mode="json") for found in pauses.active(the.store, name)]


def shown(the: ServerContext, found: Sequence[Managed]) -> list[ConnectionOut]:
    """In a few queries, however many there are."""
    names = [one.name for one in found]
    runs, waiting = the.store.pages.latest_runs(names), the.store.pages.waiting(names)
    paused, namespaces = the.store.pages.paused(names), dict[str, str]()
    detecting = {
        job.connection for job in the.store.jobs.unfinished(names) if job.kind == "detect" and job.status == "running"
    }

    def one(of: Managed) -> ConnectionOut:
        run, open_ = runs.get(of.name), waiting.get(of.name, 0)
        status = "processing" if of.name in detecting else _status(run, open_, of.name in paused)
        return _one(the, of, run, open_, status, namespaces)

    return [one(of) for of in found]


def _one(
    the: ServerContext, found: Managed, run: Run | None, waiting: int, status: Any, namespaces: dict[str, str]
) -> ConnectionOut:
    """What the server keeps names both its ends: their sections are not read for it."""
    name, spec, own = found.name, found.spec, found.by == "file"
    destination = the.project.destination_of(name) if own else str(spec["destination"])
    if destination not in namespaces:
        namespaces[destination] = _namespace(the, destination)
    return ConnectionOut(
        name=name,
        source=the.project.source_of(name) if own else str(spec["source"]),
        destination=destination,
        namespace=str(spec.get("namespace") or namespaces[destination] or name),
        policy=str(spec.get("policy") or ""),
        tags=list(found.tags),
        status=status,
        waiting=waiting,
        last_run=run,
        managed_by=found.by,
    )


def _namespace(the: ServerContext, destination: str) -> str:
    """Empty where the file refers to a value that is not there: one connection must not hide the others."""
    try:
        return the.project.common_namespace(destination)
    except ProjectError:
        return ""


def _status(run: Run | None, waiting: int, paused: bool) -> Any:
    if paused:
        return "paused"
    if run is not None and run.status in ("running", "failed"):
        return "running" if run.status == "running" else "failing"
    return "waiting" if waiting else "idle" if run is not None else "new"
