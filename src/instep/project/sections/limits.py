"""When backfills of columns and maintenance run by themselves, and how much they may do."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from instep.project.sections.schedule import time_zone
from instep.project.sections.values import Section
from instep.schema.limits import BackfillLimits
from instep.schema.maintenance import Maintenance

_WINDOW = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*-\s*([01]?\d|2[0-3]|24):([0-5]\d)")


def of_the_day(text: str) -> str:
    """Return a window of the day, or "" for none."""
    if text and minutes(text) is None:
        why = f"{text!r} is not a window: write when it opens and closes, such as 22:00-06:00"
        raise PydanticCustomError("window", "{text}", {"text": why})
    return text


def minutes(text: str) -> tuple[int, int] | None:
    """Return the minutes of the day at which a window opens and closes; None if it is none or never closes."""
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        return None
    begin, end = (int(match[i]) * 60 + int(match[i + 1]) for i in (1, 3))
    return (begin, end % 1440) if begin != end and end <= 1440 else None


class BackfillSection(Section):
    """Limits of automatic column backfills: they rewrite at most `max_bytes` of files (0: no limit), take at most
    `max_minutes` per run (0: no limit), and run only within `window`."""

    max_bytes: Annotated[int, Field(ge=0)] = BackfillLimits.max_bytes
    max_minutes: Annotated[float, Field(ge=0)] = BackfillLimits.max_minutes
    window: Annotated[str, AfterValidator(of_the_day)] = ""
    timezone: Annotated[str, AfterValidator(time_zone)] = BackfillLimits.timezone

    def limits(self) -> BackfillLimits:
        return BackfillLimits(self.max_bytes, self.max_minutes, minutes(self.window), self.timezone)


class MaintainSection(Section):
    """Maintenance of tables. Small files (below three quarters of `target_file_size`, bytes) are compacted once there
    are `min_files` of them; files whose share of deleted rows exceeds `delete_ratio` are rewritten. Snapshots older
    than `max_snapshot_age` (days) expire, except for the newest `keep_snapshots`; orphaned files are deleted after
    `orphan_age` (days). `after_sync`: a sync does it with the tables that it has loaded, and begins with no further
    table after `max_minutes`."""

    target_file_size: Annotated[int, Field(ge=1 << 20)] = Maintenance.target_file_size
    min_files: Annotated[int, Field(ge=2)] = Maintenance.min_files
    delete_ratio: Annotated[float, Field(gt=0, le=1)] = Maintenance.delete_ratio
    keep_snapshots: Annotated[int, Field(ge=1)] = Maintenance.keep_snapshots
    max_snapshot_age: Annotated[float, Field(ge=0)] = Maintenance.max_snapshot_age
    orphan_age: Annotated[float, Field(ge=1)] = Maintenance.orphan_age
    after_sync: bool = Maintenance.after_sync
    max_minutes: Annotated[float, Field(gt=0)] = Maintenance.max_minutes

    def rules(self) -> Maintenance:
        return Maintenance(**self.model_dump())
