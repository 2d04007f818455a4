"""Apply a plan exactly as it was shown.

Refused once schemas or decisions have moved since. `allow` decides what may be dropped, which takes the role
approver.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import ConsentList, Name


@dataclass(frozen=True)
class ApplyRequest(Request):
    """Which plan, and what it may drop."""

    plan: Name
    """The job that made the plan."""
    allow: ConsentList = ()
    """Patterns of what may be dropped. Takes an approver."""


SPEC = OperationSpec(
    "apply",
    role="operator",
    route="POST /connections/{connection}/apply",
    request=ApplyRequest,
    work="instep.worker.decided:apply",
    job=JobPolicy(attempts=1, two_person=True, retry_command="instep apply"),
)
