"""When something comes again: pure, given the moment. Cron lines are read in a time zone, intervals in none.

Where clocks go forward, a time that does not exist fires as soon as the clock has passed it; where they go back, a
time that comes twice fires once. Missed fires are one: what comes next is counted from now, not from the last.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from instep.errors import ProjectError

SHORTEST, LONGEST = 60, 86_400
CRON_SPREAD = 20.0
"""Seconds over which cron lines that name the same minute are spread."""
_EVERY = re.compile(r"every (\d{1,6})")


def every(seconds: int) -> str:
    """The spec of an interval; ProjectError if it is shorter than a minute or longer than a day."""
    if not SHORTEST <= seconds <= LONGEST:
        raise ProjectError(
            f"a schedule of every {seconds} s is not possible", hint="use 1 minute to 1 day, or a cron line"
        )
    return f"every {seconds}"


def next_fire(spec: str, after: datetime, name: str, timezone: str = "UTC") -> datetime | None:
    """The first fire of `every <seconds>` or of a cron line later than `after`; None if it never comes.

    `name` decides when within an interval, and by how many seconds after the minute of a cron line: thousands of
    one schedule do not come at once. Raises ProjectError for what is neither.
    """
    if match := _EVERY.fullmatch(spec):
        return _interval(int(match[1]), after, name)
    return _cron(spec, after - timedelta(seconds=spread(name, CRON_SPREAD)), name, timezone)


def spread(name: str, seconds: float) -> float:
    """Between 0 and `seconds`, always the same for a name."""
    return seconds * int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def _interval(seconds: int, after: datetime, name: str) -> datetime:
    """Fires lie on a grid from the epoch, moved by the name: a restart moves none."""
    offset = int(spread(name, seconds))
    passed = (int(after.timestamp()) - offset) // seconds
    return datetime.fromtimestamp((passed + 1) * seconds + offset, UTC)


def _cron(line: str, after: datetime, name: str, timezone: str) -> datetime | None:
    from cronsim import CronSim, CronSimError

    try:
        fires = CronSim(line, after.astimezone(ZoneInfo(timezone)))
    except (CronSimError, KeyError, OSError, ValueError) as error:
        raise ProjectError(
            f"no schedule: {line!r} in time zone {timezone!r} ({error})",
            hint="write five fields (minute hour day month weekday) and a time zone such as Europe/Berlin",
        ) from None
    delay = timedelta(seconds=spread(name, CRON_SPREAD))
    # Within the hour that comes twice it answers times of the first one, which may be over.
    found = next((fire for fire in fires if fire.astimezone(UTC) > after), None)
    return found.astimezone(UTC) + delay if found else None
