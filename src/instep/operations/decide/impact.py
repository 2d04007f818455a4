"""Show what open and planned changes do to the models that read the tables.

The job's result has the verdicts on models that are configured, else `changes` and `relations`, for a client to
judge its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import NameText, SettingText


@dataclass(frozen=True)
class ImpactRequest(Request):
    """Which changes, and which models."""

    change: NameText = ""
    """The first characters of a change's id; none: all that are open or planned."""
    configured: bool = False
    """Judge the models that the connection's `downstream` names; else the result has what a client needs to judge its
    own."""
    dialect: SettingText = ""
    """The SQL dialect of the configured models; none: as the project says."""


SPEC = OperationSpec(
    "impact",
    role="operator",
    route="POST /connections/{connection}/impact",
    request=ImpactRequest,
    result="instep.plans.downstream:ImpactAnswer",
    work="instep.plans.downstream:JudgeImpact",
    job=JobPolicy(reads_catalog=True),
)
