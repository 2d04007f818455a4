"""The scheduled detection of schema changes."""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import Name


@dataclass(frozen=True)
class GetDetector(Query):
    """Whether scheduled detection runs, waits, is off, or has switched itself off and why; what the last detection has
    counted."""

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
