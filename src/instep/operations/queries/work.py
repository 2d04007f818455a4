"""Work of a connection that waits, runs or is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.kinds import BackfillStatus, JobStatus
from instep.operations.spec import Query, QuerySpec
from instep.operations.values import Length, Name


@dataclass(frozen=True)
class ListBackfills(Query):
    """Backfills of a connection, newest first."""

    connection: Name
    """The connection."""
    status: Annotated[tuple[BackfillStatus, ...], Length(0, 4)] = ()
    """Only those with one of these statuses."""


@dataclass(frozen=True)
class ListQueue(Query):
    """Jobs, newest first, without what they have answered, which may be long."""

    connection: Name | None = None
    """Only those of this connection."""
    status: Annotated[tuple[JobStatus, ...], Length(0, 6)] = ()
    """Only those with one of these statuses."""


@dataclass(frozen=True)
class GetQueuedJob(Query):
    """One job, with its result or the error that ended it."""

    job: Name
    """The job's id, j-..., or a unique prefix of it."""


SPECS = (
    QuerySpec(
        "list_backfills",
        role="viewer",
        route="GET /connections/{connection}/backfills",
        query=ListBackfills,
        result="instep.store.catalogs.backfills:Backfill",
        work="instep.control.queries.work:BackfillList",
        paged=True,
    ),
    QuerySpec(
        "list_queue",
        role="viewer",
        route="GET /queue",
        query=ListQueue,
        result="instep.model:JobSummary",
        work="instep.control.queries.work:QueueList",
        paged=True,
        beside="instep.control.queries.work:QueueTotals",
    ),
    QuerySpec(
        "get_queued_job",
        role="viewer",
        route="GET /queue/{job}",
        query=GetQueuedJob,
        result="instep.model:Job",
        work="instep.control.queries.work:JobDetails",
    ),
)
