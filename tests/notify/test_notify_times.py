"""Digests and quiet hours by the clock on a wall, over the ends of days and of summer time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.notify.routes import due

CASES = [
    ("2026-03-01 12:00", {}, "2026-03-01 12:00"),
    ("2026-03-01 07:59", {"digest": "daily"}, "2026-03-01 08:00"),
    ("2026-03-01 08:00", {"digest": "daily"}, "2026-03-02 08:00"),
    ("2026-03-01 08:00", {"digest": "17:30"}, "2026-03-01 17:30"),
    ("2026-03-01 08:00", {"digest": "17:30", "timezone": "Asia/Tokyo"}, "2026-03-01 08:30"),
    ("2026-03-01 23:00", {"quiet": "22:00-07:00"}, "2026-03-02 07:00"),
    ("2026-03-01 06:59", {"quiet": "22:00-07:00"}, "2026-03-01 07:00"),
    ("2026-03-01 07:00", {"quiet": "22:00-07:00"}, "2026-03-01 07:00"),
    ("2026-03-01 12:30", {"quiet": "12:00-13:00"}, "2026-03-01 13:00"),
    ("2026-03-01 23:30", {"quiet": "23:00-24:00"}, "2026-03-02 00:00"),
    ("2026-03-01 05:00", {"digest": "06:00", "quiet": "22:00-07:00"}, "2026-03-01 07:00"),
    ("2026-03-01 23:00", {"quiet": "22:00-07:00", "urgent": True}, "2026-03-01 23:00"),
    ("2026-03-01 05:00", {"digest": "06:00", "urgent": True}, "2026-03-01 05:00"),
    # 29 March: 02:00 is 03:00 in Berlin; 25 October: 03:00 is 02:00
    ("2026-03-29 00:30", {"digest": "02:30", "timezone": "Europe/Berlin"}, "2026-03-29 01:30"),
    ("2026-10-24 23:00", {"digest": "02:30", "timezone": "Europe/Berlin"}, "2026-10-25 00:30"),
    ("2026-10-25 00:30", {"digest": "02:30", "timezone": "Europe/Berlin"}, "2026-10-26 01:30"),
    ("2026-10-24 22:00", {"quiet": "22:00-07:00", "timezone": "Europe/Berlin"}, "2026-10-25 06:00"),
]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(("at", "said", "expected"), CASES)
def test_when_it_may_be_told(at: str, said: dict[str, str], expected: str) -> None:
    assert due(moment(at), **said) == moment(expected)  # type: ignore[arg-type]


clocks = st.times().map(lambda t: f"{t:%H:%M}")
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])


@given(st.datetimes(datetime(2025, 1, 1), datetime(2027, 1, 1)), clocks, zones)
def test_a_digest_comes_within_a_day_at_its_time(at: datetime, clock: str, zone: str) -> None:
    now = at.replace(tzinfo=UTC)
    then = due(now, digest=clock, timezone=zone)
    assert now < then <= now + timedelta(hours=26)
    wall = f"{then.astimezone(ZoneInfo(zone)):%H:%M}"
    assert wall == clock or then.astimezone(ZoneInfo(zone)).utcoffset() != now.astimezone(ZoneInfo(zone)).utcoffset()


@given(st.datetimes(datetime(2025, 1, 1), datetime(2027, 1, 1)), clocks, clocks, zones)
def test_what_is_told_after_quiet_hours_is_told_then(at: datetime, begin: str, end: str, zone: str) -> None:
    now = at.replace(tzinfo=UTC)
    then = due(now, quiet=f"{begin}-{end}", timezone=zone)
    assert now <= then <= now + timedelta(hours=26)
    assert due(then, quiet=f"{begin}-{end}", timezone=zone) == then or begin == end
