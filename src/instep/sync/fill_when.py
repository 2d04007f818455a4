"""When an automatic backfill of columns may run: its window and its budget."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from instep.model import BackfillLimits

MINUTES = 24 * 60


def is_open(limits: BackfillLimits, now: datetime) -> bool:
    """Whether `now` (aware) is within the window; without one it always is."""
    if limits.window is None:
        return True
    local = now.astimezone(ZoneInfo(limits.timezone))
    begin, end = limits.window
    return (local.hour * 60 + local.minute - begin) % MINUTES < ((end - begin) % MINUTES or MINUTES)


def waits(limits: BackfillLimits, now: datetime, bytes: int = 0) -> str:
    """Why a backfill that writes so many bytes waits, "" if it does not."""
    if not is_open(limits, now):
        return f"it waits for its window, {window_text(limits)}"
    if limits.max_bytes and bytes > limits.max_bytes:
        return f"it writes about {bytes:,} bytes again, and the budget is {limits.max_bytes:,}"
    return ""


def window_text(limits: BackfillLimits) -> str:
    begin, end = limits.window or (0, 0)
    return f"{begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02} {limits.timezone}"
