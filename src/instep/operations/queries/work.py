"""Work of a connection that waits, runs or is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.kinds import BackfillStatus, JobStatus
from instep.operations.spec import Query, QuerySpec
from instep.operations.values import Length, Name, NameList


@dataclass(frozen=True)
class ListBackfills(Query):
    """List backfills of a connection, newest first."""

    connection: Name
    """The connection."""
    status: Annotated[tuple[BackfillStatus, ...], Length(0, 4)] = ()
    """Only items with one of these statuses."""


@dataclass(frozen=True)
class ListQueue(Query):
    """List jobs, newest first, without their results."""

    connection: Name | None = None
    """Only items of this connection."""
    status: Annotated[tuple[JobStatus, ...], Length(0, 6)] = ()
    """Only items with one of these statuses."""


@dataclass(frozen=True)
class EstimateBackfill(Query):
    """Estimate the cost of a backfill from the last detection and the destination's metadata. Neither the source nor a
    data file is opened."""

    connection: Name
    """The connection."""
    table: Annotated[Name, Length(1, 500)]
    """`schema.table`."""
    column: NameList = ()
    """Only these columns; none: the whole table."""


@dataclass(frozen=True)
class FillEstimate:
    """Estimated cost of filling columns of a table, or of reading it again (no columns). `rows` and `read` (bytes) are
    those of the source by its statistics (`sure`: it has some); `files` of so many that are rewritten, and their bytes,
    come from the destination's metadata and are exact. `whole`: why it is the whole table although columns were asked
    for."""

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
    """Estimated cost of a backfill: `rows` and bytes (`read`) at the source by its statistics (`sure`: statistics
    exist), and the `files` and bytes to rewrite at the destination. `waits` is the reason why it does not start by
    itself. `whole` is the reason why the whole table is reloaded although single columns were requested."""

    waits: str = ""


@dataclass(frozen=True)
class GetQueuedJob(Query):
    """Return one job with its result or error."""

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
