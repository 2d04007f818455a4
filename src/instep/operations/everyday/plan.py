"""Show what applying the open changes would do.

The job's result has the plan; `apply` takes the job's id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import NumberRange


@dataclass(frozen=True)
class PlanRequest(Request):
    """Extra contents of the plan."""

    sample: Annotated[int, NumberRange(0, 100_000)] | None = None
    """Also estimate the cost, and test type changes on this many rows."""
    all: bool = False
    """Also show how each table is synced, not only new ones."""
    current: bool = False
    """Refuse the plan if an approval is no longer valid."""


SPEC = OperationSpec(
    "plan",
    role="operator",
    route="POST /connections/{connection}/plans",
    request=PlanRequest,
    result="instep.plans.planned:Planned",
    work="instep.plans.planned:MakePlan",
    job=JobPolicy(reads_catalog=True),
)
