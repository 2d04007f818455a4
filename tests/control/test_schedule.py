"""When schedules fire: intervals, cron lines in time zones, clocks that go forward and back, spread by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.control.schedules import CRON_SPREAD, LONGEST, SHORTEST, every, next_fire, spread
from instep.errors import ProjectError

MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))
LINES = st.sampled_from(
    ["* * * * *", "*/15 * * * *", "0 * * * *", "30 2 * * *", "0 9-17 * * mon-fri", "0 0 1 * *", "5 4 29 2 *"]
)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])


def at(text: str, zone: str = "UTC") -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


def minute(spec: str, after: datetime, zone: str = "UTC") -> str:
    """The next fire in UTC without what the name adds."""
    found = next_fire(spec, after, "n", zone)
    assert found is not None
    return f"{found - timedelta(seconds=spread('n', CRON_SPREAD)):%Y-%m-%dT%H:%M:%S}"


CRON = [
    ("*/15 * * * *", "2026-03-01T12:01", "UTC", "2026-03-01T12:15:00"),
    ("0 9 * * mon-fri", "2026-03-06T10:00", "Europe/Berlin", "2026-03-09T08:00:00"),
    ("0 9 * * mon-fri", "2026-03-27T10:00", "Europe/Berlin", "2026-03-30T07:00:00"),  # summer time
    ("0 0 1 1 *", "2026-03-01T00:00", "UTC", "2027-01-01T00:00:00"),
    ("0 12 29 2 *", "2026-03-01T00:00", "UTC", "2028-02-29T12:00:00"),
    # 02:30 does not exist on 2026-03-29 in Berlin
    ("30 2 * * *", "2026-03-28T12:00", "Europe/Berlin", "2026-03-29T01:00:00"),
    ("30 2 * * *", "2026-03-29T12:00", "Europe/Berlin", "2026-03-30T00:30:00"),
    # 02:30 comes twice on 2026-10-25 in Berlin
    ("30 2 * * *", "2026-10-24T12:00", "Europe/Berlin", "2026-10-25T00:30:00"),
    ("30 2 * * *", "2026-10-25T12:00", "Europe/Berlin", "2026-10-26T01:30:00"),
]


@pytest.mark.parametrize(("line", "after", "zone", "wanted"), CRON)
def test_cron_lines(line: str, after: str, zone: str, wanted: str) -> None:
    assert minute(line, at(after, zone), zone) == wanted


def test_a_time_that_comes_twice_fires_once() -> None:
    now, fires = at("2026-10-24T22:00", "UTC"), []
    for _ in range(3):
        found = next_fire("30 2 * * *", now, "n", "Europe/Berlin")
        assert found is not None
        fires.append(found.date().isoformat())
        now = found
    assert fires == ["2026-10-25", "2026-10-26", "2026-10-27"]


def test_asked_within_the_second_of_two_hours_it_answers_no_past_time() -> None:
    now = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10 in Berlin, the second time
    found = next_fire("30 2 * * *", now, "n", "Europe/Berlin")
    assert found is not None
    assert found.day == 26


def test_every_quarter_of_an_hour_goes_on_while_clocks_change() -> None:
    for start in ("2026-03-29T00:00", "2026-10-25T00:00"):
        now, seen = at(start), []
        for _ in range(12):
            found = next_fire("*/15 * * * *", now, "n", "Europe/Berlin")
            assert found is not None
            seen.append(found)
            now = found
        assert {b - a for a, b in pairwise(seen)} == {timedelta(minutes=15)}


@pytest.mark.parametrize("line", ["0 0 30 2 *", "0 0 31 4 *"])
def test_what_never_comes(line: str) -> None:
    with pytest.raises(ProjectError, match="no schedule"):
        next_fire(line, at("2026-01-01T00:00"), "n")


@pytest.mark.parametrize(
    ("spec", "zone"), [("", "UTC"), ("* * *", "UTC"), ("a b c d e", "UTC"), ("0 0 * * *", "Mars/X")]
)
def test_what_is_no_schedule(spec: str, zone: str) -> None:
    with pytest.raises(ProjectError, match="no schedule"):
        next_fire(spec, at("2026-01-01T00:00"), "n", zone)


@pytest.mark.parametrize("seconds", [0, SHORTEST - 1, LONGEST + 1, -5])
def test_intervals_are_one_minute_to_one_day(seconds: int) -> None:
    with pytest.raises(ProjectError, match=r"1 minute to 1 day|is not possible"):
        every(seconds)


@given(LINES, MOMENTS, st.text(max_size=5), ZONES)
def test_a_fire_is_later_and_fires_go_on(line: str, now: datetime, name: str, zone: str) -> None:
    first = next_fire(line, now, name, zone)
    assert first is not None
    assert first > now
    second = next_fire(line, first, name, zone)
    assert second is not None
    assert second - first >= timedelta(seconds=60)


@given(LINES, MOMENTS, st.text(max_size=5), ZONES, st.integers(0, 86_400))
def test_nothing_is_skipped_between_two_moments(line: str, now: datetime, name: str, zone: str, later: int) -> None:
    """Asked at any moment before a fire the answer is that fire: missed ones are one, and none is passed over."""
    found = next_fire(line, now, name, zone)
    assert found is not None
    between = min(now + timedelta(seconds=later), found - timedelta(seconds=1))
    if between > now:
        assert next_fire(line, between, name, zone) == found


@given(st.integers(SHORTEST, LONGEST), MOMENTS, st.text(max_size=5))
def test_intervals_lie_on_a_grid_of_their_own(seconds: int, now: datetime, name: str) -> None:
    first = next_fire(every(seconds), now, name)
    assert first is not None
    assert timedelta() < first - now <= timedelta(seconds=seconds + 1)
    assert next_fire(every(seconds), first, name) == first + timedelta(seconds=seconds)
    assert next_fire(every(seconds), first - timedelta(seconds=1), name) == first


def test_thousands_of_one_schedule_are_spread_evenly() -> None:
    now = at("2026-03-01T12:00")
    fires = [next_fire(every(3600), now, f"c{n}") for n in range(5000)]
    minutes = [sum(f is not None and (f - now).total_seconds() // 60 == m for f in fires) for m in range(60)]
    assert 40 < min(minutes) <= max(minutes) < 140
