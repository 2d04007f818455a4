"""Moving a cursor's text form back by a lookback window."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation

from instep.errors import ReadError


def moved_back(after: str | None, lookback: float, column: str) -> str | None:
    """`after` less `lookback`: seconds for a date or time, units for a number. The form stays (`T` or a space,
    fraction digits, offset), for texts are compared letter by letter. Raises ReadError for other text."""
    if after is None or not lookback:
        return after
    try:
        return format(Decimal(after) - Decimal(str(lookback)), "f")
    except InvalidOperation:
        pass
    try:
        moment = datetime.fromisoformat(after)
    except ValueError:
        raise ReadError(
            f"cursor {column}: {after!r} is neither a number nor a date, so it cannot be moved back",
            hint="set the lookback of this table to 0",
        ) from None
    return _like(moment - timedelta(seconds=lookback), after)


def _like(moment: datetime, form: str) -> str:
    if len(form) == len("2024-01-01"):
        return moment.strftime("%Y-%m-%d")
    separator = form[10]
    zone = form.endswith("Z")
    clock = form[11:].rstrip("Z").split("+")[0].split("-")[0]
    digits = clock.partition(".")[2]
    precision = "minutes" if clock.count(":") == 1 else "microseconds" if digits else "seconds"
    shown = moment.replace(tzinfo=None).isoformat(separator, precision)
    shown = shown[: len(shown) - 6 + len(digits)] if 0 < len(digits) < 6 else shown
    offset = "Z" if zone else form[11 + len(clock) :]
    return shown + offset
