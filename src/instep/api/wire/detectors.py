"""Documents of the scheduled detector."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from instep.api.wire.base import Asked, Dry, Said, Text


class EnableDetectorRequest(Asked):
    why: Text = ""


class DetectionOut(Said):
    """One detection. `counts`: new, deleted, updated and unchanged by level, once it has looked."""

    job: str
    status: str
    why: str
    triggered_by_error: bool
    ended: datetime | None
    error: str
    counts: dict[str, dict[str, int]]


class DetectorOut(Said):
    """`frequency` in seconds; `state` processing: a detection runs. `reason` says why it has switched itself off.
    `options` of the source as a whole and of `tables` by pattern, as far as they are said."""

    connection: str
    state: Literal["processing", "queued", "scheduled", "off", "internal_disabled"]
    enabled: bool
    frequency: int
    internal_disabled_detect_schema_changes: bool
    reason: str
    next_due: datetime | None
    current: DetectionOut | None
    last: DetectionOut | None
    options: dict[str, Any]
    tables: dict[str, dict[str, Any]]


class Enabled(Dry):
    """`changed` false: it had not switched itself off."""

    changed: bool
    detector: DetectorOut
