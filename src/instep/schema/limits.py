"""When an automatic backfill of columns may run: its window and its budget."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

MINUTES = 24 * 60


@dataclass(frozen=True)
class BackfillLimits:
    """Limits of automatic column backfills. `max_bytes`: of files to write again, more waits for a person; 0: any.
    `max_minutes`: how long one run works on them before the next goes on; 0: until they are done. `window`: minutes of
    the day in `timezone` from when until when, past midnight where the second is the lower one; None: always."""

    max_bytes: int = 0
    max_minutes: float = 0.0
    window: tuple[int, int] | None = None
    timezone: str = "UTC"


def is_open(limits: BackfillLimits, now: datetime) -> bool:
    """Return whether `now` (aware) is within the window; without one it always is."""
    if limits.window is None:
        return True
    local = now.astimezone(ZoneInfo(limits.timezone))
    begin, end = limits.window
    return (local.hour * 60 + local.minute - begin) % MINUTES < ((end - begin) % MINUTES or MINUTES)


def waits(limits: BackfillLimits, now: datetime, bytes: int = 0) -> str:
    """Return why a backfill that writes so many bytes waits, "" if it does not."""
    if not is_open(limits, now):
        return f"it waits for its window, {window_text(limits)}"
    if limits.max_bytes and bytes > limits.max_bytes:
        return f"it writes about {bytes:,} bytes again, and the budget is {limits.max_bytes:,}"
    return ""


def window_text(limits: BackfillLimits) -> str:
    begin, end = limits.window or (0, 0)
    return f"{begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02} {limits.timezone}"
