"""Answers about scheduled detection, from the store alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from instep.control.detector import State, detector_status
from instep.control.queries.context import QueryContext
from instep.model import Job
from instep.operations.queries.detectors import GetDetector
from instep.operations.spec import QueryWork


@dataclass(frozen=True)
class DetectionSummary:
    """One detection."""

    job: str
    status: str
    why: str
    triggered_by_error: bool
    ended: datetime | None
    error: str
    counts: Mapping[str, Mapping[str, int]]
    """New, deleted, updated and unchanged objects by level, once it has looked."""

    @classmethod
    def of(cls, job: Job) -> DetectionSummary:
        """Return the summary of a job."""
        by_error, counts = bool(job.options.get("triggered_by_error")), job.result.get("counts", {})
        return cls(job.id, job.status, job.why, by_error, job.ended, job.error, counts)


@dataclass(frozen=True)
class DetectorDetails:
    """The scheduled detection of a connection."""

    connection: str
    state: State
    """processing: a detection runs; internal_disabled: it has switched itself off."""
    enabled: bool
    frequency: int
    """Interval in seconds."""
    internal_disabled_detect_schema_changes: bool
    reason: str
    """Reason why it has disabled itself."""
    next_due: datetime | None
    current: DetectionSummary | None
    """The detection that runs or waits."""
    last: DetectionSummary | None
    """The detection that ended last."""
    options: Mapping[str, Any]
    """Options of the source as a whole, as far as they are set."""
    tables: Mapping[str, Mapping[str, Any]]
    """Options of tables by pattern."""


class DetectorLookup(QueryWork):
    """The scheduled detection of one connection."""

    def find(self, context: QueryContext, query: GetDetector) -> DetectorDetails:
        """Return its state, its last detections and its options."""
        found = detector_status(context.store, context.project, context.connection(query.connection))
        return DetectorDetails(
            found.connection,
            found.state,
            found.enabled,
            found.frequency,
            found.internal_disabled,
            found.reason,
            found.next_due,
            DetectionSummary.of(found.job) if found.job else None,
            DetectionSummary.of(found.last) if found.last else None,
            dict(found.options),
            {pattern: dict(options) for pattern, options in found.tables.items()},
        )
