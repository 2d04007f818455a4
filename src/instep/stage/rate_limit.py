"""Keeps the tasks of one sync within what it may ask of the source."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from instep.stage.spec import SourceLimits

_SLICE = 0.5
"""Seconds: a task that waits can still be stopped and heard."""


def task_count(limits: SourceLimits, wanted: int, at_once: int) -> int:
    """Return how many tasks to make. Each has one connection, and the driver holds one of those that are allowed. With
    a bound of rows a second no more than run `at_once`, so that none keeps a share that it cannot use."""
    if limits.rows_per_second:
        wanted = min(wanted, at_once)
    return max(1, min(wanted, limits.connections - 1)) if limits.connections else max(1, wanted)


class Pace:
    """A task's share of the rows a second; 0: no bound."""

    def __init__(self, rows_per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rows_per_second, clock
        self._free = clock()

    def waits(self, rows: int) -> Iterator[float]:
        """Yield the seconds to sleep after `rows` more rows, in slices."""
        if not self._rate:
            return
        self._free = max(self._free, self._clock() - 1 / self._rate) + rows / self._rate
        while (left := self._free - self._clock()) > 0:
            yield min(left, _SLICE)
