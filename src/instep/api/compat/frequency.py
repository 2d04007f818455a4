"""How often a connection is synced: minutes on the wire, a cron line in the project."""

from __future__ import annotations

import re

FREQUENCIES = (1, 5, 15, 30, 60, 120, 180, 360, 480, 720, 1440)
DEFAULT = 360


def cron(minutes: int, time: str = "00:00") -> str:
    """The line of a frequency; `time` (HH:MM on the hour) counts for once a day."""
    if minutes < 60:
        return "* * * * *" if minutes == 1 else f"*/{minutes} * * * *"
    if minutes == 1440:
        return f"0 {int(time[:2])} * * *"
    return "0 * * * *" if minutes == 60 else f"0 */{minutes // 60} * * *"


_KNOWN = {cron(minutes): minutes for minutes in FREQUENCIES if minutes < 1440}
_DAILY = re.compile(r"0 (\d{1,2}) \* \* \*")


def minutes(line: str) -> tuple[int, str]:
    """(frequency, time of day) that come nearest to a cron line; the time is "" unless it is once a day."""
    if line in _KNOWN:
        return _KNOWN[line], ""
    if found := _DAILY.fullmatch(line):
        return 1440, f"{int(found[1]):02}:00"
    return DEFAULT, ""
