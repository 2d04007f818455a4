"""Work of a connection that waits, runs or is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.kinds import BackfillStatus, JobStatus
from instep.operations.spec import Query, QuerySpec
from instep.operations.values import Length, Name, NameList


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
class EstimateBackfill(Query):
    """What a backfill takes, from the last detection and the destination's metadata: neither the source nor a file is
    opened."""

    connection: Name
    """The connection."""
    table: Annotated[Name, Length(1, 500)]
    """`schema.table`."""
    column: NameList = ()
    """Only these columns; none: the whole table."""


@dataclass(frozen=True)
class FillEstimate:
    """What filling columns of a table takes, or reading it again (no columns). `rows` and `read` (bytes) are those of
    the source by its statistics (`sure`: it has some); `files` of so many that are written again, and their bytes,
    come from the destination's metadata and are exact. `whole`: why it is the whole table although columns were
    asked for."""

    table: str
    columns: tuple[str, ...]
    rows: int
    read: int
    files: int
    of: int
    rewritten: int
    sure: bool
    why_not: str = ""
    whole: str = ""


@dataclass(frozen=True)
class BackfillOutlook(FillEstimate):
    """What a backfill takes: `rows` and bytes (`read`) at the source by its statistics (`sure`: it has some), `files`
    of so many and bytes that are written again. `waits`: what holds it up unless a person asks for it. `whole`: why it
    is the whole table (no `columns`) although columns were asked for."""

    waits: str = ""


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
        "estimate_backfill",
        role="viewer",
        route="GET /connections/{connection}/backfills/estimate",
        query=EstimateBackfill,
        result="instep.operations.queries.work:BackfillOutlook",
        work="instep.sync.schema_changes.backfill_plan:BackfillEstimates",
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
