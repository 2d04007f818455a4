"""Cancel a job of the queue, and try one again."""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import ImmediateRequest, ImmediateSpec
from instep.operations.values import Name


@dataclass(frozen=True)
class CancelJobRequest(ImmediateRequest):
    """Cancel a job: at once if it is queued, otherwise when its worker notices."""

    job: Name
    """The job's id, j-..., or a unique prefix of it."""


@dataclass(frozen=True)
class RetryJobRequest(ImmediateRequest):
    """Put a job that failed, died or was cancelled back into the queue. Requires the same role as requesting the job.
    Jobs that need two people, and deletions of connections, can be retried only by the person who requested them."""

    job: Name
    """The job's id, j-..., or a unique prefix of it."""


SPECS = (
    ImmediateSpec(
        "cancel_job",
        role="operator",
        route="POST /queue/{job}/cancel",
        request=CancelJobRequest,
        result="instep.control.immediate.jobs:ChangedJob",
        work="instep.control.immediate.jobs:JobCancellation",
        audit="job.cancel",
        target="job",
    ),
    ImmediateSpec(
        "retry_job",
        role="operator",  # and more by what the job does: see `server.immediate_routes`
        route="POST /queue/{job}/retry",
        request=RetryJobRequest,
        result="instep.control.immediate.jobs:ChangedJob",
        work="instep.control.immediate.jobs:JobRetry",
        audit="job.retry",
        target="job",
    ),
)
