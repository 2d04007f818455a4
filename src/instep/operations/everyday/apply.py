"""Apply a plan exactly as it was shown.

Refused if schemas or decisions have changed since. `allow` names the objects that may be dropped and requires the role
approver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from instep.errors import InstepError
from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import ConsentList, LeadsTo, Length, OwnUse


@dataclass(frozen=True)
class ApplyRequest(Request):
    """Plan to apply, and the objects that it may drop."""

    plan: Annotated[str, Length(0, 200), LeadsTo("name")]
    """The job that made the plan; "" for one that was made at the project."""
    allow: ConsentList = ()
    """Patterns of objects that may be dropped. Requires the role approver."""
    document: Annotated[Mapping[str, Any] | None, OwnUse(), LeadsTo("setting")] = None
    """The plan itself, as `instep plan -o` writes it: at the project it need not be a job's."""

    def check_remote(self) -> None:
        """Refuse a plan that is no job's: a server takes no plan from outside."""
        if not self.plan:
            raise InstepError(
                "this plan was not made by the server", hint="write it with `instep plan -o FILE` over --server"
            )


SPEC = OperationSpec(
    "apply",
    role="operator",
    route="POST /connections/{connection}/apply",
    request=ApplyRequest,
    result="instep.plans.planned:ApplyReport",
    work="instep.plans.planned:ApplyPlan",
    job=JobPolicy(attempts=1, two_person=True, retry_command="instep apply"),
)
