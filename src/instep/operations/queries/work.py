"""Queries about connections, their status, jobs, runs and backfills.

Work of a connection that waits, runs or is over.

The scheduled detection of schema changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import BackfillStatus, JobStatus, LeadsTo, Length, Name, NameList, TableOutcomeStatus

Text = Annotated[str, Length(0, 200), LeadsTo("name")]
ConnectionState = Literal["processing", "paused", "running", "failing", "waiting", "idle", "new"]
"""processing: a detection runs; waiting: for a person; new: it has never run."""


@dataclass(frozen=True)
class ListConnections(Query):
    """List connections by name."""

    tag: Text | None = None
    """Only connections with this tag."""
    policy: Text | None = None
    """Only connections that name this policy."""
    search: Text | None = None
    """Only names that contain this text."""
    status: ConnectionState | None = None
    """Only connections in this state."""


@dataclass(frozen=True)
class CountConnections(Query):
    """Count connections by state."""

    tag: Text | None = None
    """Only connections with this tag."""
    policy: Text | None = None
    """Only connections that name this policy."""
    search: Text | None = None
    """Only names that contain this text."""


@dataclass(frozen=True)
class GetConnection(Query):
    """Return one connection with its pauses."""

    connection: Name
    """The connection."""
    freshness: bool = True
    """False: freshness is null, and no table is looked at for it."""


@dataclass(frozen=True)
class ListStatus(Query):
    """List the status of every connection, by name."""


@dataclass(frozen=True)
class GetStatus(Query):
    """Last run, pauses, waiting changes, how many tables fared how, requested backfills, quarantined values. Without
    the state of a source's log: the server opens no source."""

    connection: Name
    """The connection."""


@dataclass(frozen=True)
class ListTableStatus(Query):
    """List how each table of a connection fared last and when it was maintained, by schema and name."""

    connection: Name
    """The connection."""
    search: Annotated[str, Length(0, 500), LeadsTo("name")] = ""
    """A part of a table's name."""
    status: Annotated[tuple[TableOutcomeStatus, ...], Length(0, 5)] = ()
    """Only tables with one of these outcomes."""


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
class EstimatedBackfill(FillEstimate):
    """Estimated cost of a backfill: `rows` and bytes (`read`) at the source by its statistics (`sure`: statistics
    exist), and the `files` and bytes to rewrite at the destination. `waits` is the reason why it does not start by
    itself. `whole` is the reason why the whole table is reloaded although single columns were requested."""

    waits: str = ""


@dataclass(frozen=True)
class GetQueuedJob(Query):
    """Return one job with its result or error."""

    job: Name
    """The job's id, j-..., or a unique prefix of it."""


@dataclass(frozen=True)
class GetDetector(Query):
    """Return the status of scheduled detection (running, waiting, off, or disabled after a problem) and the counts of
    the last detection."""

    connection: Name
    """The connection."""


SPECS = (
    QuerySpec(
        "list_connections",
        role="viewer",
        route="GET /connections",
        query=ListConnections,
        result="instep.control.queries.work:ConnectionSummary",
        work="instep.control.queries.work:ConnectionList",
        paged=True,
    ),
    QuerySpec(
        "count_connections",
        role="viewer",
        route="GET /connection-counts",
        query=CountConnections,
        result="instep.control.queries.work:ConnectionCounts",
        work="instep.control.queries.work:ConnectionCounting",
    ),
    QuerySpec(
        "get_connection",
        role="viewer",
        route="GET /connections/{connection}",
        query=GetConnection,
        result="instep.control.queries.work:ConnectionDetails",
        work="instep.control.queries.work:ConnectionLookup",
    ),
    QuerySpec(
        "list_status",
        role="viewer",
        route="GET /status",
        query=ListStatus,
        result="instep.store.catalogs.connection_status:ConnectionStatus",
        work="instep.bootstrap.status:StatusList",
        paged=True,
        page_size=50,
        largest_page=100,
    ),
    QuerySpec(
        "get_status",
        role="viewer",
        route="GET /connections/{connection}/status",
        query=GetStatus,
        result="instep.store.catalogs.connection_status:ConnectionStatus",
        work="instep.bootstrap.status:StatusLookup",
    ),
    QuerySpec(
        "list_table_status",
        role="viewer",
        route="GET /connections/{connection}/status/tables",
        query=ListTableStatus,
        result="instep.store.catalogs.connection_status:TableLoad",
        work="instep.bootstrap.status:TableStatusList",
        paged=True,
        largest_page=200,
    ),
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
        page_summary="instep.control.queries.work:QueueTotals",
    ),
    QuerySpec(
        "estimate_backfill",
        role="viewer",
        route="GET /connections/{connection}/backfills/estimate",
        query=EstimateBackfill,
        result="instep.operations.queries.work:EstimatedBackfill",
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
    QuerySpec(
        "get_detector",
        role="viewer",
        route="GET /connections/{connection}/detector",
        query=GetDetector,
        result="instep.control.queries.work:DetectorDetails",
        work="instep.control.queries.work:DetectorLookup",
    ),
)
