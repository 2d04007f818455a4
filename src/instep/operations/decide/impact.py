"""Show how open and planned changes affect the models that read the tables.

The job's result has the verdicts for configured models; otherwise `changes` and `relations`, with which a client
evaluates its own models.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import NameText, SettingText


@dataclass(frozen=True)
class ImpactRequest(Request):
    """Changes to evaluate, and the models to evaluate them on."""

    change: NameText = ""
    """A change's id or its first characters; none: all open and planned changes."""
    configured: bool = False
    """Evaluate the models that the connection's `downstream` names; otherwise the result has the data with which a
    client evaluates its own models."""
    dialect: SettingText = ""
    """SQL dialect of the configured models; none: the project's setting."""


SPEC = OperationSpec(
    "impact",
    role="operator",
    route="POST /connections/{connection}/impact",
    request=ImpactRequest,
    result="instep.plans.downstream:ImpactAnswer",
    work="instep.plans.downstream:JudgeImpact",
    job=JobPolicy(reads_catalog=True),
)
