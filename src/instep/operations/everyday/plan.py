"""Show what applying the open changes does.

The job's result has the plan; `apply` takes the job's id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import NumberRange


@dataclass(frozen=True)
class PlanRequest(Request):
    """What the plan shows beside its steps."""

    sample: Annotated[int, NumberRange(0, 100_000)] | None = None
    """Also what it costs, with type changes tried on this many rows."""
    all: bool = False
    """How every table is synced, not only new ones."""
    current: bool = False
    """Refuse to plan while an approval does not count any more."""


SPEC = OperationSpec(
    "plan",
    role="operator",
    route="POST /connections/{connection}/plans",
    request=PlanRequest,
    result="instep.plans.planned:Planned",
    work="instep.plans.planned:MakePlan",
    job=JobPolicy(reads_catalog=True),
)
