"""Routes that move rows (sync, resync), and setup tests of a connection with both ends, or of a destination alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import RootModel

from instep.control.resync import Scope, ask, chosen
from instep.events import SyncRequested
from instep.server.fivetran_api.connection import MOVES, shown
from instep.server.fivetran_api.http.envelope import Refusal, success
from instep.server.fivetran_api.http.models import TestedConnection
from instep.server.fivetran_api.http.ports import ApiJob, Item
from instep.server.fivetran_api.http.request_body import RequestBody, Truth, parse
from instep.server.fivetran_api.http.request_context import RequestContext
from instep.server.fivetran_api.http.route import Body, Name, RequestContextDep, route_options
from instep.server.fivetran_api.http.services import TYPES
from instep.store.work.jobs import CONNECTION_TEST, serves

router = APIRouter(prefix="/connections/{id}")
RESYNCED = "Re-sync has been triggered successfully"


class SyncBody(RequestBody):
    force: Truth = False


class ResyncBody(RequestBody):
    scope: dict[str, list[str]] | None = None


class TablesByName(RootModel[dict[str, list[str]]]):
    """Schemas, each with its tables."""


@router.post("/sync", **route_options(takes=SyncBody, needs_body=False))
def sync(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    return _sync(context, context.connection(id), parse(SyncBody, body), join=False)


@router.post("/force", **route_options())
def force(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    """Start a sync (older form): one that is under way is the one that was requested."""
    return _sync(context, context.connection(id), SyncBody(), join=True)


@router.post("/resync", **route_options(takes=ResyncBody, needs_body=False))
def resync(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    parsed = parse(ResyncBody, body)
    return _resync(context, id, parsed.scope, parsed.remark(RESYNCED))


@router.post("/schemas/tables/resync", **route_options(takes=TablesByName))
def resync_tables(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    scope = parse(ResyncBody, {"scope": body}).scope or {}
    # some clients send {"schema": ["public.users"]}: whole paths under a word that is no schema
    schemas = context.place(id).known.schemas if context.own_connection(id) else frozenset()
    out: dict[str, list[str]] = {}
    for schema, names in scope.items():
        for name in names:
            head, dot, rest = name.partition(".")
            whole = schema not in schemas and dot and head in schemas
            out.setdefault(head if whole else schema, []).append(rest if whole else name)
    return _resync(context, id, out)


@router.post("/schemas/{schema}/tables/{table}/resync", **route_options())
def resync_table(id: Name, schema: Name, table: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    return _resync(context, id, {schema: [table]})


@router.post("/test", **route_options(TestedConnection))
def test(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    item = context.own_connection(id)
    tests = connection_tests(context, id, recorded=True)
    [view] = shown(context.ports, [item])
    return success("Setup tests were completed", {**view, "setup_tests": tests})


def _sync(context: RequestContext, item: Item, body: SyncBody, *, join: bool) -> JSONResponse:
    if item.kind == "foreign":
        # it has no source: the sync fails, and says so where clients look
        service = str(item.spec.get("service", ""))
        text, code = context.why_incomplete(item), "reconnect" if service in TYPES else "service_not_supported"
        task = {"code": code, "message": text, "details": text}
        patch = {"failed_at": datetime.now(UTC).isoformat(), "tasks": [task]}
        with context.write():
            context.ports.objects.change("foreign", item.name, patch, context.caller.name)
        return success(f"Sync has been successfully triggered for connection with id '{item.name}'")
    with context.ports.store.transaction():  # of two that ask at the same time one is told that it syncs already
        return _begin(context, item.name, body, join=join)


def _begin(context: RequestContext, id: str, body: SyncBody, *, join: bool) -> JSONResponse:
    jobs, who = context.ports.jobs, context.caller.name
    done = body.remark(f"Sync has been successfully triggered for connection with id '{id}'")
    if id in context.ports.store.pauses.paused_connections([id]):
        raise Refusal(409, f"Connection '{id}' is paused.", hint='resume it first: PATCH it with {"paused": false}')
    # the jobs that a client sees as a sync: what waits for a later time is none
    now = datetime.now(UTC)
    unfinished = (j for j in context.ports.jobs.unfinished([id]).get(id, ()) if j.kind in MOVES)
    running = [j for j in unfinished if j.status == "running" or j.due is None or j.due <= now]
    under_way = running or _runs(context, id)
    if under_way and join:
        four_eyes = context.ports.project(id).model.four_eyes
        if _is_to_come(running) or (four_eyes and not any(serves(job.who, who) for job in running)):
            context.record(job=jobs.enqueue(id, "sync", {}, who=who, urgent=True).id)
        return success(done)
    if under_way and not body.force:
        raise Refusal(409, f"Connection '{id}' is syncing already.", hint='{"force": true} stops it and starts again')
    for job in running:
        jobs.cancel(job.id, who)
    context.record(job=jobs.enqueue(id, "sync", {}, who=who, urgent=True).id)
    context.ports.store.events.add(SyncRequested(id, who))
    return success(done)


def _is_to_come(api_jobs: Sequence[ApiJob]) -> bool:
    """Return True if a sync waits, which who asks for it joins."""
    return any(job.kind == "sync" and job.status == "queued" for job in api_jobs)


def _runs(context: RequestContext, id: str) -> bool:
    outcome = context.ports.store.runs.outcomes([id]).get(id)
    return outcome is not None and outcome.running


def _resync(context: RequestContext, id: str, scope: Scope | None, message: str = RESYNCED) -> JSONResponse:
    """Request a reload of tables: the next sync reads them, which a paused connection has when it is resumed."""
    context.own_connection(id)
    tables, who, store = chosen(context.place(id), scope), context.caller.name, context.ports.store
    with store.transaction():
        ask(store, id, tables, who, whole=scope is None)
        if id not in store.pauses.paused_connections([id]):
            context.ports.jobs.enqueue(id, "sync", {}, who=who, urgent=True)
        context.record(tables="all" if scope is None else [".".join(filter(None, ref)) for ref in tables])
    return success(message)


def connection_tests(context: RequestContext, name: str, *, recorded: bool = False) -> list[dict[str, Any]]:
    """Run the connection's tests; return one entry per check. Raises Refusal as `RequestContext.run`."""
    return _found(context.run(name, CONNECTION_TEST, {}, key="test", recorded=recorded))


def destination_tests(context: RequestContext, name: str, *, recorded: bool = False) -> list[dict[str, Any]]:
    return _found(context.run("", CONNECTION_TEST, {"destination": name}, key=f"destination/{name}", recorded=recorded))


def at_once(
    test: Callable[[RequestContext, str], list[dict[str, Any]]], context: RequestContext, name: str
) -> list[dict[str, Any]]:
    """Return the tests of what was just written, which stands all the same if they fail or bring no answer in time."""
    try:
        return test(context, name)
    except Refusal as refusal:
        status = "SKIPPED" if refusal.status == 503 else "JOB_FAILED"
        return [{"title": f"Connecting to {name}", "status": status, "message": refusal.message, "details": ""}]


def _found(job: ApiJob) -> list[dict[str, Any]]:
    """Return the checks of a setup test; one that need not pass is a warning."""
    return [
        {
            "title": check["name"],
            "status": "PASSED" if check["ok"] else "FAILED" if check.get("needed", True) else "WARNING",
            "message": check.get("detail", ""),
            "details": check.get("hint", ""),
        }
        for check in job.detail.get("checks", ())
    ]
