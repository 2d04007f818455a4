"""Cancelling and retrying jobs of the queue, in the store alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instep.control.immediate.context import WriteContext
from instep.control.queries.work import JobDetails
from instep.model import Job
from instep.operations.immediate.jobs import CancelJobRequest, RetryJobRequest
from instep.operations.queries.work import GetQueuedJob
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
        found = JobDetails().find(context, GetQueuedJob(request.job))
        return ChangedJob(context.store.jobs.cancel(found.id, context.who))


class JobRetry(_JobChange):
    """Put one job back into the queue."""

    def execute(self, context: WriteContext, request: RetryJobRequest, prepared: None) -> ChangedJob:
        """Let it wait again with all its attempts; Conflict for one that is under way, done, or another person's."""
        found = JobDetails().find(context, GetQueuedJob(request.job))
        return ChangedJob(context.store.jobs.retry(found.id, context.who))
