"""Immediate operations on waiting work, in the store alone: jobs, backfills, pauses and scheduled detection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instep.control import backfills, pauses
from instep.control.detector import option, patch, switch_on
from instep.control.immediate.context import WriteContext
from instep.control.pauses import ActivePause
from instep.control.queries.work import DetectorDetails, DetectorLookup, JobDetails
from instep.control.resources.resources import merged
from instep.errors import Blocked
from instep.model import Job
from instep.operations.immediate.work import (
    CancelBackfillRequest,
    CancelJobRequest,
    EnableDetectorRequest,
    PauseRequest,
    ResumeRequest,
    RetryJobRequest,
    SetDetectorOptionsRequest,
)
from instep.operations.queries.work import GetDetector, GetQueuedJob
from instep.operations.spec import ImmediateRequest, ImmediateWork


@dataclass(frozen=True)
class ChangedJob:
    """A job after it was changed."""

    job: Job
    """The job as it is now."""


class _JobChange(ImmediateWork):
    """Change one job."""

    def detail(self, request: ImmediateRequest, result: ChangedJob) -> Mapping[str, Any]:
        """Return the connection, and the kind of the job."""
        return {"connection": result.job.connection, "kind": result.job.kind}


class JobCancellation(_JobChange):
    """Cancel one job."""

    def execute(self, context: WriteContext, request: CancelJobRequest, prepared: None) -> ChangedJob:
        """End it if it waits, else ask its worker to stop; Conflict for one that is over."""
        job = JobDetails().find(context, GetQueuedJob(request.job))
        return ChangedJob(context.store.jobs.cancel(job.id, context.who))


class JobRetry(_JobChange):
    """Put one job back into the queue."""

    def execute(self, context: WriteContext, request: RetryJobRequest, prepared: None) -> ChangedJob:
        """Let it wait again with all its attempts; Conflict for one that is under way, done, or another person's."""
        job = JobDetails().find(context, GetQueuedJob(request.job))
        return ChangedJob(context.store.jobs.retry(job.id, context.who))


class BackfillCancellation(ImmediateWork):
    """Cancel what waits or runs for a table, and the jobs that would do it."""

    def execute(self, context: WriteContext, request: CancelBackfillRequest, prepared: None) -> backfills.Cancelled:
        """Cancel it; NotFound for a table or a column that is not accepted."""
        table = backfills.accepted_table(context.store, request.connection, request.table, request.columns)
        return backfills.cancel(context.store, request.connection, table, request.columns, context.who)

    def detail(self, request: CancelBackfillRequest, result: backfills.Cancelled) -> Mapping[str, Any]:
        """Return the table, its columns, and the jobs that ended."""
        return {"table": request.table, "columns": request.columns, "jobs": result.jobs}


@dataclass(frozen=True)
class PauseResult:
    """Pauses of a connection after a request."""

    paused: bool
    """True if it is paused; after a resume, true if anything of the connection still is."""
    changed: bool
    """True if this request changed it."""
    pauses: tuple[ActivePause, ...]
    """Pauses of the connection in effect."""


class Pausing(ImmediateWork):
    """Pause a connection or a table."""

    def execute(self, context: WriteContext, request: PauseRequest, prepared: None) -> PauseResult:
        """Pause it, unless a person has paused it already."""
        new = pauses.pause(context.store, request.connection, request.reason, _ref(request.table))
        return PauseResult(True, new, pauses.active(context.store, request.connection))

    def detail(self, request: PauseRequest, result: PauseResult) -> Mapping[str, Any]:
        """Return the reason and the table."""
        return {"reason": request.reason, "table": request.table}


class Resuming(ImmediateWork):
    """Resume a connection or a table."""

    def prepare(self, context: WriteContext, request: ResumeRequest) -> None:
        """Decide again where an open change holds it up: the policy of today may let the change in."""
        if context.decide_anew is None:
            return
        try:
            pauses.check_resumable(context.store, request.connection, _ref(request.table))
        except Blocked:
            context.decide_anew(request.connection)

    def execute(self, context: WriteContext, request: ResumeRequest, prepared: None) -> PauseResult:
        """End its pauses; Blocked while a change is open that has stopped it."""
        ended = pauses.resume(context.store, request.connection, context.who, _ref(request.table))
        left = pauses.active(context.store, request.connection)
        return PauseResult(bool(left), bool(ended), left)

    def detail(self, request: ResumeRequest, result: PauseResult) -> Mapping[str, Any]:
        """Return the table."""
        return {"table": request.table}


def _ref(table: tuple[str, ...] | None) -> pauses.Ref | None:
    return (table[0], table[1]) if table else None


@dataclass(frozen=True)
class EnabledDetector:
    """Scheduled detection that is enabled."""

    changed: bool
    """True if it had disabled itself."""
    detector: DetectorDetails
    """Status of scheduled detection."""


@dataclass(frozen=True)
class SetDetector:
    """Scheduled detection with its changed options."""

    connection: str
    """The connection."""
    version: int
    """Version of the connection's settings with the change."""


class DetectorEnabling(ImmediateWork):
    """Enable scheduled detection again."""

    def execute(self, context: WriteContext, request: EnableDetectorRequest, prepared: None) -> EnabledDetector:
        """Enable it; Blocked while the connection is paused."""
        changed = switch_on(context.store, request.connection, context.who)
        return EnabledDetector(changed, DetectorLookup().find(context, GetDetector(request.connection)))

    def detail(self, request: EnableDetectorRequest, result: EnabledDetector) -> Mapping[str, Any]:
        """Return the reason."""
        return {"why": request.why}


class DetectorSetting(ImmediateWork):
    """Change options of scheduled detection."""

    def execute(self, context: WriteContext, request: SetDetectorOptionsRequest, prepared: None) -> SetDetector:
        """Change them in the connection's settings; Conflict for a connection of the project file."""
        of_table = bool(request.table)
        options = {option(name, of_table=of_table): value for name, value in request.values.items()}
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
        before = context.resources.get("connection", request.connection)
        spec = merged(before.spec, patch(before.spec, values, request.table))
        made = context.resources.put(
            "connection",
            request.connection,
            spec,
            who=context.who,
            expected=before.version,
            dry_run=context.rehearsed,  # what is rolled back may be remembered by its version
        )
        return SetDetector(request.connection, made.version)

    def detail(self, request: SetDetectorOptionsRequest, result: SetDetector) -> Mapping[str, Any]:
        """Return the names of the options, and the tables."""
        return {"options": sorted(request.values), "table": request.table, "version": result.version}
