"""The queue: jobs that wait for workers, are under way, or are over."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query

from instep.model import JobStatus
from instep.server.access import CallerDep, ServerDep
from instep.server.models import Page, ResponseModel
from instep.server.paging import Cursor, Limit, paged, place
from instep.server.responses import router


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


routes = router("queue")


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
