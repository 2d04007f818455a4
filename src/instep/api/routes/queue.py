"""The queue: jobs that wait for workers, are under way, or are over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from instep.api.access import The, Who, check_role
from instep.api.common import name, router
from instep.api.matrix import Need, again
from instep.api.paging import Cursor, Limit, paged, place
from instep.api.problems import unknown
from instep.api.server import Caller, Server
from instep.api.wire.queue import JobChanged, JobListed, JobPage, JobWhole, WorkerOut
from instep.api.writes import Answer, Write, Writes
from instep.errors import InstepError
from instep.model import Job, JobStatus

routes = router("queue")
JobId = Annotated[str, name("A job's id, j-...")]


@routes.get("/queue", response_model=JobPage)
def list_queue(
    who: Who,
    the: The,
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


@routes.get("/queue/{job}", response_model=JobWhole)
def get_queued(who: Who, the: The, job: JobId) -> Any:
    """With what it did, or why it failed."""
    return _known(the, who, job)


def _known(the: Server, who: Caller, job: str) -> Job:
    """By its id, or how that begins."""
    try:
        return the.store.jobs.get(job, the.names(who))
    except InstepError:
        raise unknown("job", job) from None


@routes.post("/queue/{job}/cancel", response_model=JobChanged)
def cancel(the: The, who: Who, job: JobId, writes: Writes) -> Response:
    """At once if it waits, else as soon as its worker hears of it."""
    return _changed(the, who, job, writes, "job.cancel", the.store.jobs.cancel)


@routes.post("/queue/{job}/retry", response_model=JobChanged)
def retry(the: The, who: Who, job: JobId, writes: Writes) -> Response:
    """Puts one that failed, died or was cancelled back into the queue. It takes the role that asking for it takes; what
    takes two people, and the end of a connection, only whoever asked for it may try again."""
    check_role(the, who, "POST /queue/{job}/retry", Need(again(_known(the, who, job))))
    return _changed(the, who, job, writes, "job.retry", the.store.jobs.retry)


def _changed(
    the: Server, who: Caller, job: str, writes: Write, action: str, change: Callable[[str, str], Job]
) -> Response:
    def do() -> Answer:
        found = _known(the, who, job)
        done = change(found.id, who.who)
        return Answer({"job": asdict(done)}, detail={"connection": found.connection, "kind": found.kind})

    return writes.run(action, job, do)
