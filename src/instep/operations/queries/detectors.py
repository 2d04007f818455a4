"""The scheduled detection of schema changes."""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import Name


@dataclass(frozen=True)
class GetDetector(Query):
    """Return the status of scheduled detection (running, waiting, off, or disabled after a problem) and the counts of
    the last detection."""

    connection: Name
    """The connection."""


SPEC = QuerySpec(
    "get_detector",
    role="viewer",
    route="GET /connections/{connection}/detector",
    query=GetDetector,
    result="instep.control.queries.detectors:DetectorDetails",
    work="instep.control.queries.detectors:DetectorLookup",
)
