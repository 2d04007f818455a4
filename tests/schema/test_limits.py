"""Windows, also past midnight and in other time zones, and budgets."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from instep.project.sections.schedule import minutes
from instep.schema.maintenance import BackfillLimits, is_open, waits

NIGHT, DAY = "22:00-06:00", "09:30-17:00"


@pytest.mark.parametrize(
    ("window", "zone", "time", "expected"),
    [
        ("", "UTC", "12:00", True),
        (NIGHT, "UTC", "21:59", False),
        (NIGHT, "UTC", "22:00", True),
        (NIGHT, "UTC", "03:00", True),
        (NIGHT, "UTC", "06:00", False),
        (DAY, "UTC", "09:29", False),
        (DAY, "UTC", "16:59", True),
        (DAY, "UTC", "17:00", False),
        (NIGHT, "Europe/Berlin", "20:30", False),
        (NIGHT, "Europe/Berlin", "21:00", True),
        (NIGHT, "Europe/Berlin", "05:00", False),
        ("18:00-24:00", "UTC", "23:59", True),
        ("18:00-24:00", "UTC", "00:00", False),
    ],
)
def test_windows(window: str, zone: str, time: str, expected: bool) -> None:
    limits = BackfillLimits(window=minutes(window), timezone=zone)
    now = datetime.fromisoformat(f"2026-01-15T{time}").replace(tzinfo=UTC)
    assert is_open(limits, now) is expected


@pytest.mark.parametrize("text", ["", "22:00", "22-06", "25:00-06:00", "22:60-06:00", "08:00-08:00", "08:00-24:30"])
def test_what_is_no_window(text: str) -> None:
    assert minutes(text) is None


@pytest.mark.parametrize(
    ("limits", "bytes", "expected"),
    [
        (BackfillLimits(), 10**15, ""),
        (BackfillLimits(max_bytes=100), 100, ""),
        (BackfillLimits(max_bytes=1000), 1001, "it writes about 1,001 bytes again, and the budget is 1,000"),
        (BackfillLimits(window=(60, 120)), 0, "it waits for its window, 01:00-02:00 UTC"),
    ],
)
def test_why_it_waits(limits: BackfillLimits, bytes: int, expected: str) -> None:
    assert waits(limits, datetime(2026, 1, 15, 12, tzinfo=UTC), bytes) == expected
