"""Connections: what there is and how each fares; pausing; work that a worker does."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from instep.api.access import The, Who
from instep.api.common import REHEARSED, ConnectionName, router
from instep.api.paging import Cursor, Limit, paged, place
from instep.api.problems import Problem
from instep.api.server import Queued, Server
from instep.api.wire import (
    ConnectionOut,
    ConnectionWithPauses,
    JobOut,
    Look,
    Page,
    Paused,
    PauseOut,
    Pausing,
    Resuming,
    RunOut,
    Work,
)
from instep.api.writes import Answer, Write, Writes, tagged
from instep.control import pauses
from instep.errors import ProjectError
from instep.model import Pause, Run

routes = router("connections")


@routes.get("/connections", response_model=Page[ConnectionOut])
def list_connections(
    who: Who,
    the: The,
    limit: Limit = 100,
    cursor: Cursor = None,
    tag: Annotated[str | None, Query(max_length=200)] = None,
    search: Annotated[str | None, Query(max_length=200, description="A part of the name.")] = None,
) -> Any:
    """By name."""
    names = sorted(_wanted(the, the.names(who), tag, search))
    if (behind := place(cursor, str)) is not None:
        names = names[bisect_right(names, behind[0]) :]
    found = _shown(the, names[: limit + 1])
    return paged(found, limit, lambda one: (one.name,), lambda one: one)


def _wanted(the: Server, scope: Collection[str] | None, tag: str | None, search: str | None) -> list[str]:
    names: Collection[str] = the.project.connections if scope is None else scope
    if search is not None:
        names = [name for name in names if search.lower() in name.lower()]
    return list(names) if tag is None else [n for n in names if tag in the.project.connection(n).tags]


@routes.get("/connections/{connection}", response_model=ConnectionWithPauses)
def get_connection(request: Request, who: Who, the: The, connection: ConnectionName) -> Response:
    """With its pauses."""
    return tagged(request, _whole(the, the.connection(who, connection)))


def _whole(the: Server, name: str) -> dict[str, Any]:
    [shown] = _shown(the, [name])
    return {**shown.model_dump(mode="json"), "pauses": _pauses(the, name)}


def _pauses(the: Server, name: str) -> list[dict[str, Any]]:
    return [_pause(found).model_dump(mode="json") for found in the.store.pauses.active(name)]


def _pause(found: Pause) -> PauseOut:
    table = ".".join(filter(None, found.table)) if found.table else None
    return PauseOut(reason=found.reason, since=found.since, change=found.change, table=table)


def _shown(the: Server, names: Sequence[str]) -> list[ConnectionOut]:
    """In four queries, however many there are."""
    runs, waiting = the.store.pages.latest_runs(names), the.store.pages.waiting(names)
    paused = the.store.pages.paused(names)
    return [_one(the, name, runs.get(name), waiting.get(name, 0), name in paused) for name in names]


def _one(the: Server, name: str, run: Run | None, waiting: int, paused: bool) -> ConnectionOut:
    project, section = the.project, the.project.connection(name)
    return ConnectionOut(
        name=name,
        source=project.source_of(name),
        destination=project.destination_of(name),
        namespace=_namespace(the, name),
        policy=section.policy,
        tags=list(section.tags),
        status=_status(run, waiting, paused),
        waiting=waiting,
        last_run=RunOut.model_validate(run) if run else None,
        managed_by="file",
    )


def _namespace(the: Server, name: str) -> str:
    """Empty where the file refers to a value that is not there: one connection must not hide the others."""
    try:
        return the.project.namespace_of(name)
    except ProjectError:
        return ""


def _status(run: Run | None, waiting: int, paused: bool) -> Any:
    if paused:
        return "paused"
    if run is not None and run.status in ("running", "failed"):
        return "running" if run.status == "running" else "failing"
    return "waiting" if waiting else "idle" if run is not None else "new"


@routes.post("/connections/{connection}/pause", response_model=Paused)
def pause(the: The, who: Who, connection: ConnectionName, asked: Pausing, writes: Writes) -> Response:
    """Nothing of it runs until it is resumed. Pausing twice changes nothing."""
    name = the.connection(who, connection)

    def do() -> Answer:
        writes.check(_whole(the, name))
        pauses.pause(the.store, name, asked.reason, _table(asked.table))
        return Answer({"paused": True, "pauses": _pauses(the, name)}, detail=asked.model_dump())

    return writes.run("connection.pause", name, do)


@routes.post("/connections/{connection}/resume", response_model=Paused)
def resume(the: The, who: Who, connection: ConnectionName, asked: Resuming, writes: Writes) -> Response:
    """Refused while a change is open that has stopped it."""
    name = the.connection(who, connection)

    def do() -> Answer:
        writes.check(_whole(the, name))
        pauses.resume(the.store, name, who.who, _table(asked.table))
        left = _pauses(the, name)
        return Answer({"paused": bool(left), "pauses": left}, detail=asked.model_dump())

    return writes.run("connection.resume", name, do)


def _table(given: list[str] | None) -> tuple[str, str] | None:
    return (given[0], given[1]) if given else None


_STARTED: dict[int | str, dict[str, Any]] = {
    200: {"model": JobOut, "description": f"It was there before this request. {REHEARSED}"},
    202: {"model": JobOut, "description": "It waits for a worker."},
}


@routes.post("/connections/{connection}/sync", status_code=202, response_model=JobOut, responses=_STARTED)
def sync(the: The, who: Who, connection: ConnectionName, asked: Work, writes: Writes) -> Response:
    """202 with the work; 200 with what is under way."""
    name = the.connection(who, connection)
    return _work(the, writes, name, "sync", asked.model_dump(exclude={"why"}), asked.why)


@routes.post("/connections/{connection}/detect", status_code=202, response_model=JobOut, responses=_STARTED)
def detect(the: The, who: Who, connection: ConnectionName, asked: Look, writes: Writes) -> Response:
    """202 with a new detection; 200 with the one that is under way."""
    return _work(the, writes, the.connection(who, connection), "detect", {}, asked.why)


def _work(the: Server, writes: Write, name: str, kind: str, options: dict[str, Any], why: str) -> Response:
    queue = the.queue
    if queue is None:
        raise Problem(503, "unavailable", "this server has no queue of work", "start a worker for it")

    def do() -> Answer:
        found = queue.enqueue(name, kind, options=options, who=writes.caller.who, why=why)
        return Answer(vars(found), 202 if found.fresh else 200, {"job": found.id, **options, "why": why})

    return writes.run(f"connection.{kind}", name, do)


@routes.get("/jobs/{job}", response_model=JobOut)
def get_job(the: The, who: Who, job: ConnectionName) -> Queued:
    """Work that was asked for."""
    found = the.queue.get(job) if the.queue else None
    if found is None or not the.sees(who, found.connection):
        raise Problem(404, "not_found", f"no job {job!r} is known", "see the runs of its connection")
    return found
