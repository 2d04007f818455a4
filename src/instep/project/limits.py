"""When backfills of columns run by themselves, and how much they may do."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from instep.project.schedule import time_zone
from instep.project.values import Section
from instep.schema.limits import BackfillLimits

_WINDOW = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*-\s*([01]?\d|2[0-3]|24):([0-5]\d)")


def _window(text: str) -> str:
    if text and minutes(text) is None:
        why = f"{text!r} is no window: write when it opens and closes, such as 22:00-06:00"
        raise PydanticCustomError("window", "{text}", {"text": why})
    return text


def minutes(text: str) -> tuple[int, int] | None:
    """The minutes of the day at which a window opens and closes; None if it is none or never closes."""
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        return None
    begin, end = (int(match[i]) * 60 + int(match[i + 1]) for i in (1, 3))
    return (begin, end % 1440) if begin != end and end <= 1440 else None


class BackfillSection(Section):
    """Backfills of columns that no person has asked for: at most `max_bytes` of files written again (0: any number),
    at most `max_minutes` a run (0: until it is done), and only within `window`."""

    max_bytes: Annotated[int, Field(ge=0)] = 0
    max_minutes: Annotated[float, Field(ge=0)] = 0
    window: Annotated[str, AfterValidator(_window)] = ""
    timezone: Annotated[str, AfterValidator(time_zone)] = "UTC"

    def limits(self) -> BackfillLimits:
        return BackfillLimits(self.max_bytes, self.max_minutes, minutes(self.window), self.timezone)
