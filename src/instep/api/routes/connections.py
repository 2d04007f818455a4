"""Connections: what there is and how each fares; pausing; work that a worker does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from instep.api import kept
from instep.api.access import The, Who
from instep.api.common import ConnectionName, router
from instep.api.paging import Cursor, Limit, paged, place
from instep.api.routes.work import STARTED, located
from instep.api.server import Caller, Server
from instep.api.wire.base import Page
from instep.api.wire.connections import ConnectionOut, ConnectionWithPauses, Paused, PauseOut, Pausing, Resuming
from instep.api.wire.runs import RunOut
from instep.api.wire.work import JobOut, Look, Work
from instep.api.writes import Answer, Write, Writes, tagged
from instep.control import pauses
from instep.control.objects import Managed
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
    behind = place(cursor, str)
    after = behind[0] if behind else ""
    found = kept.page(the, who, "connection", after=after, limit=limit + 1, name=search or "", tag=tag)
    return paged(_shown(the, found), limit, lambda one: (one.name,), lambda one: one)


@routes.get("/connections/{connection}", response_model=ConnectionWithPauses)
def get_connection(request: Request, who: Who, the: The, connection: ConnectionName) -> Response:
    """With its pauses."""
    return tagged(request, _whole(the, who, connection))


def _whole(the: Server, who: Caller, name: str) -> dict[str, Any]:
    [shown] = _shown(the, [kept.known(the, who, "connection", name)])
    return {**shown.model_dump(mode="json"), "pauses": _pauses(the, name)}


def _pauses(the: Server, name: str) -> list[dict[str, Any]]:
    return [_pause(found).model_dump(mode="json") for found in the.store.pauses.active(name)]


def _pause(found: Pause) -> PauseOut:
    table = ".".join(filter(None, found.table)) if found.table else None
    return PauseOut(reason=found.reason, since=found.since, change=found.change, table=table)


def _shown(the: Server, found: Sequence[Managed]) -> list[ConnectionOut]:
    """In a few queries, however many there are."""
    names = [one.name for one in found]
    runs, waiting = the.store.pages.latest_runs(names), the.store.pages.waiting(names)
    paused, namespaces = the.store.pages.paused(names), dict[str, str]()
    return [_one(the, of, runs.get(of.name), waiting.get(of.name, 0), of.name in paused, namespaces) for of in found]


def _one(
    the: Server, found: Managed, run: Run | None, waiting: int, paused: bool, namespaces: dict[str, str]
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
        status=_status(run, waiting, paused),
        waiting=waiting,
        last_run=RunOut.model_validate(run) if run else None,
        managed_by=found.by,
    )


def _namespace(the: Server, destination: str) -> str:
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


@routes.post("/connections/{connection}/pause", response_model=Paused)
def pause(the: The, who: Who, connection: ConnectionName, asked: Pausing, writes: Writes) -> Response:
    """Nothing of it runs until it is resumed. Pausing twice changes nothing."""
    name = the.connection(who, connection)

    def do() -> Answer:
        writes.check(_whole(the, who, name))
        new = pauses.pause(the.store, name, asked.reason, _table(asked.table))
        return Answer({"paused": True, "changed": new, "pauses": _pauses(the, name)}, detail=asked.model_dump())

    return writes.run("connection.pause", name, do)


@routes.post("/connections/{connection}/resume", response_model=Paused)
def resume(the: The, who: Who, connection: ConnectionName, asked: Resuming, writes: Writes) -> Response:
    """Refused while a change is open that has stopped it."""
    name = the.connection(who, connection)

    def do() -> Answer:
        writes.check(_whole(the, who, name))
        ended = pauses.resume(the.store, name, who.who, _table(asked.table))
        left = _pauses(the, name)
        return Answer({"paused": bool(left), "changed": bool(ended), "pauses": left}, detail=asked.model_dump())

    return writes.run("connection.resume", name, do)


def _table(given: list[str] | None) -> tuple[str, str] | None:
    return (given[0], given[1]) if given else None


@routes.post("/connections/{connection}/sync", status_code=202, response_model=JobOut, responses=STARTED)
def sync(the: The, who: Who, connection: ConnectionName, asked: Work, writes: Writes) -> Response:
    """202 with the work; 200 with what is under way."""
    name = the.connection(who, connection)
    return _work(the, writes, name, "sync", asked.model_dump(exclude={"why"}), asked.why)


@routes.post("/connections/{connection}/detect", status_code=202, response_model=JobOut, responses=STARTED)
def detect(the: The, who: Who, connection: ConnectionName, asked: Look, writes: Writes) -> Response:
    """202 with a new detection; 200 with the one that is under way."""
    return _work(the, writes, the.connection(who, connection), "detect", {}, asked.why)


def _work(the: Server, writes: Write, name: str, kind: str, options: dict[str, Any], why: str) -> Response:
    def do() -> Answer:
        found = the.queue.enqueue(name, kind, options=options, who=writes.caller.who, why=why)
        return Answer(vars(found), 202 if found.fresh else 200, {"job": found.id, **options, "why": why})

    return located(writes.run(f"connection.{kind}", name, do))
