"""Cron lines, intervals and time zones, checked when the file is read.

When backfills of columns and maintenance run by themselves, and how much they may do.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from instep.project.sections.values import Section
from instep.schema.maintenance import BackfillLimits, Maintenance

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 7, _DAYS),
)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_EVERY = re.compile(r"every\s+([1-9]\d{0,5})\s*([smhd])")
_PART = re.compile(r"(\*|\w+(?:-\w+)?)(?:/([1-9]\d*))?")


def interval(text: str) -> int | None:
    """Return the seconds of `every 15m` (s, m, h or d); None for another text."""
    match = _EVERY.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2]] if match else None


def schedule(text: str) -> str:
    """Return a cron line, or `every 15m`: an interval of one minute to one day; "" for none."""
    if not text.strip().startswith("every"):
        return cron(text)
    if not 60 <= (interval(text) or 0) <= 86_400:
        raise _wrong(f"{text!r} is not an interval: write every 1m to every 24h, or a cron line such as 0 6 * * *")
    return text


def cron(text: str) -> str:
    """Return a cron line of five fields, or "" for none; the error names the wrong field."""
    fields = text.split()
    if not fields:
        return text
    if len(fields) != len(_FIELDS):
        example = "write one such as 0 6 * * *, or an interval such as every 15m"
        raise _wrong(f"a schedule has five fields (minute hour day month weekday), this one {len(fields)}: {example}")
    for value, (name, low, high, words) in zip(fields, _FIELDS, strict=True):
        for part in value.split(","):
            if not _fits(part, low, high, words):
                raise _wrong(f"{value!r} is not a valid {name}: use {low} to {high}, *, lists, ranges or */steps")
    if not _comes(text):
        raise _wrong(f"{text!r} names no day that ever comes, such as February 30")
    return text


def _comes(line: str) -> bool:
    """Return whether the clock of the schedules takes the line."""
    from cronsim import CronSim, CronSimError

    try:
        CronSim(line, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return True


def _fits(part: str, low: int, high: int, words: tuple[str, ...]) -> bool:
    match = _PART.fullmatch(part)
    if not match or (match[2] and int(match[2]) > high):
        return False
    if match[1] == "*":
        return True
    ends = [_number(end, low, words) for end in match[1].split("-")]
    return all(end is not None and low <= end <= high for end in ends) and (ends[0] or 0) <= (ends[-1] or 0)


def _number(text: str, low: int, words: tuple[str, ...]) -> int | None:
    if text.lower() in words:
        return words.index(text.lower()) + low
    return int(text) if text.isascii() and text.isdigit() else None


def time_zone(name: str) -> str:
    """Return an IANA time zone."""
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise _wrong(f"unknown time zone {name!r}: use a name such as UTC or Europe/Berlin") from None
    return name


def _wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError("schedule", "{text}", {"text": text})


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
