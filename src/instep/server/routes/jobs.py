"""Jobs of a connection on request: a plan, its application, an undo, backfills, the connection's end.
Every request answers 202 with the job, or 200 with the same job that waits already; `Location` is its address."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Depends, Query
from starlette.responses import Response

from instep.control import queue
from instep.control.backfills import accepted_table
from instep.control.queries.work import as_shown_to
from instep.control.resources.api_keys import may
from instep.errors import InstepError
from instep.model import Job, JobKind, Review, Run
from instep.operations.everyday.backfill import BackfillRequest
from instep.operations.queries.work import GetConnection
from instep.server.access import PREFIX, REHEARSED, CallerDep, ConnectionName, ServerDep, router
from instep.server.context import Caller, ServerContext
from instep.server.models import JobDone, JobOut
from instep.server.problems import ApiProblem, of_error, unknown
from instep.server.query_routes import read_document
from instep.server.queue import shown
from instep.server.requests import requested
from instep.server.writes import Matched, Write, WriteAnswer, Writes
from instep.store.catalogs.backfills import BY_PERSON
from instep.store.catalogs.plans import StoredPlan

if TYPE_CHECKING:
    from instep.sync.two_people import Act

routes = router("work")
STARTED: dict[int | str, dict[str, Any]] = {
    200: {"model": JobOut, "description": f"It was there before this request. {REHEARSED}"},
    202: {"model": JobOut, "description": "Queued for a worker."},
}


@routes.post("/connections/{connection}/backfills", status_code=202, response_model=JobOut, responses=STARTED)
def backfill(
    server: ServerDep,
    who: CallerDep,
    connection: ConnectionName,
    body: Annotated[BackfillRequest, Depends(requested(BackfillRequest))],
    writes: Writes,
) -> Response:
    """Reload a whole table, or fill `columns` where rows have NULL."""
    name = server.connection(who, connection)
    table = accepted_table(server.store, name, body.table, body.columns)

    def before() -> None:
        for column in body.columns:
            server.store.backfills.request(name, table.ref, column=column, why=f"{BY_PERSON}{who.who}")

    return ask(server, writes, name, "backfill", body.options(), body.why, before)


@routes.delete("/connections/{connection}", status_code=202, response_model=JobOut, responses=STARTED)
def delete_connection(
    server: ServerDep,
    who: CallerDep,
    connection: ConnectionName,
    writes: Matched,
    confirm: Annotated[str, Query(max_length=200, description="The connection's name again.")] = "",
    tables: Annotated[Literal["keep", "drop"], Query(description="Whether its tables stay or are dropped.")] = "keep",
    abandon: Annotated[
        bool, Query(description="Leave behind what is at a source or destination that cannot be reached.")
    ] = False,
) -> Response:
    """Delete a connection with its slot at the source, its records and, on request, its tables.

    With four_eyes the first person who asks is answered 409, and the same request of a second one within a week is
    carried out.
    """
    from instep.sync.two_people import DELETION, Act, leaving

    name = server.connection(who, connection)
    server.app.objects.check_deletable("connection", name)
    if confirm != name:
        raise ApiProblem(409, "blocked", f"connection {name} is deleted only by its name", f"send confirm={name}")
    if not writes.repeated():
        _check_unmoved(server, who, name, writes)
    act = Act(name, DELETION, leaving(tables, abandon=abandon))
    if (
        server.project.model.four_eyes
        and (waits := wait_for_second(server, writes, act, "connection.delete")) is not None
    ):
        return waits
    options = {"tables": tables, "named": confirm, "abandon": abandon}
    return ask(
        server, writes, name, "delete_connection", options, "", lambda: _check_unmoved(server, who, name, writes)
    )


def _check_unmoved(server: ServerContext, who: Caller, name: str, writes: Write) -> None:
    if writes.match is not None:
        writes.check(*(read_document(server, who, GetConnection(name, freshness=one)) for one in (False, True)))


def wait_for_second(server: ServerContext, writes: Write, act: Act, action: str) -> Response | None:
    """Return the refusal of an act that nobody else has asked for; the request is kept, unless this is a rehearsal."""
    from instep.sync.two_people import requested_alone

    if writes.repeated():  # it is answered as it was then, whatever there is to agree on now
        return None
    with server.store.transaction():
        refused = requested_alone(server.store, act, writes.caller.who)
        if refused is None:
            return None
        if writes.dry_run:
            raise refused
        problem = of_error(refused)
        refusal = WriteAnswer(problem.document(), problem.status, vars(act))
        return writes.run(f"{action}.requested", act.connection, lambda: refusal)


@routes.get("/jobs/{job}", response_model=JobDone)
def get_job(server: ServerDep, who: CallerDep, job: ConnectionName) -> Any:
    """Return one job with its status and result. `run` is the run that the job created."""
    record = _job(server, who, job)
    if record is None:
        raise ApiProblem(404, "not_found", f"no job {job!r} is known", "see the runs of its connection")
    return JobDone(**{**vars(as_shown_to(who.key.role, server.store.jobs.open_result(record))), "fresh": False})


def _job(server: ServerContext, who: Caller, job: str) -> Job | None:
    """Find a job by its whole id."""
    try:
        record = server.store.jobs.get(job, server.names(who))
    except InstepError:
        return None
    return record if record.id == job else None


def ask(
    server: ServerContext,
    writes: Write,
    name: str,
    kind: JobKind,
    options: Mapping[str, Any],
    why: str,
    before: Any = None,
) -> Response:
    def do() -> WriteAnswer:
        if before is not None:
            before()
        queued = queue.ask(server.store, name, kind, writes.caller.who, options)
        job = queued.job
        body = vars(shown(server.store, job, fresh=queued.new))
        return WriteAnswer(body, 202 if queued.new else 200, {"job": job.id, **options, "why": why})

    return located(writes.run(f"connection.{kind}", name, do))


def located(answer: Response) -> Response:
    """Return the response with the address of its job; a rehearsed one has none, and a refusal that is told again."""
    document = json.loads(bytes(answer.body))
    if not document.get("dry_run") and "id" in document:
        answer.headers["Location"] = f"{PREFIX}/jobs/{document['id']}"
    return answer


def check_allow(server: ServerContext, who: Caller, name: str, requested: Any) -> None:
    """Raise problem 403 for who may not decide what is dropped."""
    if requested.allow:
        check_drop(who, "allow")


def check_plan(server: ServerContext, who: Caller, name: str, requested: Any) -> None:
    """Raise problem 422 for a job that has made no plan for this connection."""
    made = _job(server, who, requested.plan)
    if made is None or (made.connection, made.kind, made.status) != (name, "plan", "done"):
        why = f"job {requested.plan!r} has made no plan for connection {name}"
        raise ApiProblem(422, "invalid", why, "make a plan first")


def check_drop(who: Caller, field: str) -> None:
    """Raise problem 403 for who may not decide what is dropped, which `field` of the body does."""
    if not may(who.key.role, "approver"):
        key = who.key
        why = f"`{field}` decides what is dropped, which needs the role approver; API key {key.id} is {key.role}"
        raise ApiProblem(403, "forbidden", why, "leave it out, or use another key")


def check_owner(server: ServerContext, who: Caller, name: str, requested: Any) -> None:
    """Raise problem 404 for a change, run or plan of another connection."""
    store, what = server.store, requested.what
    kind = what[:2]
    owner: Run | StoredPlan | Review
    try:
        owner = (
            store.runs.get(what) if kind == "r-" else store.plans.get(what) if kind == "p-" else store.reviews.get(what)
        )
    except InstepError:
        raise unknown("change, run or plan", what) from None
    if owner.connection != name or owner.id != what:
        raise unknown("change, run or plan", what)
