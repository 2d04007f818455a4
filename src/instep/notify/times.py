"""When a notice may be told: digests and quiet hours, by the wall clock of a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from instep.project.limits import minutes

DAILY = "08:00"


def due(at: datetime, *, digest: str = "", quiet: str = "", timezone: str = "UTC", urgent: bool = False) -> datetime:
    """The moment from which on a notice of `at` may be told, in UTC: the next digest, or the end of the quiet hours.
    What is urgent is told at once."""
    if urgent:
        return at
    zone = ZoneInfo(timezone)
    local = at.astimezone(zone)
    if digest:
        local = _next(local, time.fromisoformat(DAILY if digest == "daily" else digest), zone)
    return _after_quiet(local, quiet, zone).astimezone(UTC)


def _next(local: datetime, clock: time, zone: ZoneInfo) -> datetime:
    """The first moment after `local` at which a clock on the wall shows that time."""
    for days in (0, 1, 2):
        found = datetime.combine(local.date() + timedelta(days=days), clock, zone)
        if found.astimezone(UTC) > local.astimezone(UTC):
            return found
    raise AssertionError("a day has 23 to 25 hours")


def _after_quiet(local: datetime, quiet: str, zone: ZoneInfo) -> datetime:
    window = minutes(quiet)
    if window is None:
        return local
    begin, end = window
    now = local.hour * 60 + local.minute
    within = begin <= now < end if begin < end else now >= begin or now < end
    return _next(local, time(end // 60, end % 60), zone) if within else local
