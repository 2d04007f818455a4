"""Cron lines, intervals and time zones, checked when the file is read."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from pydantic_core import PydanticCustomError

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
        raise _wrong(f"{text!r} is not an interval: write every 1m to every 24h")
    return text


def cron(text: str) -> str:
    """Return a cron line of five fields, or "" for none; the error names the wrong field."""
    fields = text.split()
    if not fields:
        return text
    if len(fields) != len(_FIELDS):
        raise _wrong(f"a schedule has five fields (minute hour day month weekday), this one {len(fields)}")
    for value, (name, low, high, words) in zip(fields, _FIELDS, strict=True):
        for part in value.split(","):
            if not _fits(part, low, high, words):
                raise _wrong(f"{value!r} is no {name}: use {low} to {high}, *, lists, ranges or */steps")
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
