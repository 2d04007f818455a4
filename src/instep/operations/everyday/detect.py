"""Detect schema changes in the source and evaluate them against the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from instep.operations.spec import JobPolicy, OperationSpec, Request


@dataclass(frozen=True)
class DetectRequest(Request):
    """Detection of schema changes; no options but the reason."""


@dataclass(frozen=True)
class Detected:
    """The findings of a detection."""

    skipped: str = ""
    """The reason for which the source was not looked at, "" if it was."""
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Numbers of new, deleted, updated and unchanged schemas, tables and columns."""
    changes: tuple[str, ...] = ()
    """The ids of the changes that differ from what is accepted."""
    waiting: tuple[str, ...] = ()
    """The ids of those that wait for a person now."""
    pending: bool = False
    """True if something waits for a person, or for the next plan."""
    missing: tuple[str, ...] = ()
    """Errors of patterns of `include` that no table fits."""
    others: bool = True
    """True if there are tables beside those that are missing."""
    version: int = 0
    """The accepted version that was made of what policy accepts; 0 for none."""
    shared: bool = False
    """True if another connection of the source had looked for it."""


_ROUTE = "POST /connections/{connection}/detect"
_RESULT = "instep.operations.everyday.detect:Detected"
_WORK = "instep.worker.detect:DetectChanges"

SPECS = tuple(
    OperationSpec(name, "operator", _ROUTE, _WORK, JobPolicy(attempts, reads_catalog=True), DetectRequest, _RESULT)
    for name, attempts in (("detect", 3), ("refresh", 3), ("reload", 1))
)
"""`refresh` is a scheduled detection, `reload` one that a client of the compatible API waits for."""
