"""The queue: jobs that wait for workers, are under way, or are over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from instep.control.queries.work import JobDetails
from instep.model import Job, JobStatus
from instep.operations.queries.work import GetQueuedJob
from instep.server.access import CallerDep, ServerDep, check_role
from instep.server.context import Caller, ServerContext
from instep.server.models import DryRunResult, Page, ResponseModel
from instep.server.paging import Cursor, Limit, paged, place
from instep.server.query_routes import context_of
from instep.server.responses import name, router
from instep.server.roles import Need, again
from instep.server.writes import Write, WriteAnswer, Writes


class JobListed(ResponseModel):
    """`attempt` counts the claims, of which it gets `attempts`; `due`: not begun before. `error` says why its last
    attempt failed. failed: another attempt would not help; dead: all are used up."""

    id: str
    connection: str
    kind: str
    status: str
    due: datetime
    created: datetime
    options: dict[str, Any]
    priority: int
    key: str
    attempt: int
    attempts: int
    why: str
    who: str
    error: str
    started: datetime | None
    ended: datetime | None
    lease_until: datetime | None
    owner: str
    fence: int
    stop: str
    run: str
    source: str


class WorkerOut(ResponseModel):
    id: str
    host: str
    pid: int
    lanes: int
    started: datetime
    seen: datetime
    stopping: bool


class JobPage(Page[JobListed]):
    """What a job has answered is in the job alone. `counts` by status and `workers` are of the whole server: empty for
    keys that are for some groups."""

    counts: dict[str, int]
    workers: list[WorkerOut]


class JobChanged(DryRunResult):
    job: Job


routes = router("queue")
JobId = Annotated[str, name("A job's id, j-...")]


@routes.get("/queue", response_model=JobPage)
def list_queue(
    who: CallerDep,
    the: ServerDep,
    limit: Limit = 100,
    cursor: Cursor = None,
    connection: Annotated[str | None, Query(max_length=200)] = None,
    status: Annotated[tuple[JobStatus, ...], Query(max_length=6)] = (),
) -> Any:
    """Newest first, without what they have answered, which may be long."""
    behind = place(cursor, datetime, str)
    named = the.connection(who, connection) if connection is not None else None
    found = the.store.jobs.find(
        status=status,
        connection=named,
        scope=the.names(who) if named is None else None,
        after=(behind[0], behind[1]) if behind else None,
        limit=limit + 1,
        whole=False,
    )
    counts, workers = ({}, []) if who.scoped else (the.store.jobs.counts(), the.store.workers.live())
    page = paged(found, limit, lambda one: (one.created, one.id), JobListed.model_validate)
    return {**page, "counts": counts, "workers": [WorkerOut.model_validate(w) for w in workers]}


def _known(the: ServerContext, who: Caller, job: str) -> Job:
    """Return the job with this id, or with the one id that begins so."""
    return JobDetails().find(context_of(the, who), GetQueuedJob(job))


@routes.post("/queue/{job}/cancel", response_model=JobChanged)
def cancel(the: ServerDep, who: CallerDep, job: JobId, writes: Writes) -> Response:
    """At once if it waits, else as soon as its worker hears of it."""
    return _changed(the, who, job, writes, "job.cancel", the.store.jobs.cancel)


@routes.post("/queue/{job}/retry", response_model=JobChanged)
def retry(the: ServerDep, who: CallerDep, job: JobId, writes: Writes) -> Response:
    """Puts one that failed, died or was cancelled back into the queue. It takes the role that asking for it takes; what
    takes two people, and the end of a connection, only whoever asked for it may try again."""
    check_role(the, who, "POST /queue/{job}/retry", Need(again(_known(the, who, job))))
    return _changed(the, who, job, writes, "job.retry", the.store.jobs.retry)


def _changed(
    the: ServerContext, who: Caller, job: str, writes: Write, action: str, change: Callable[[str, str], Job]
) -> Response:
    def do() -> WriteAnswer:
        found = _known(the, who, job)
        done = change(found.id, who.who)
        return WriteAnswer({"job": asdict(done)}, detail={"connection": found.connection, "kind": found.kind})

    return writes.run(action, job, do)
