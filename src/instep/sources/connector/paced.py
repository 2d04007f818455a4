"""Log lines of a connector on their way into a run, so many a minute: a loop that logs fills no store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from instep.sources.connector.segment import LogLine

MOST_A_MINUTE = 1500
_ALWAYS = frozenset({"warning", "error"})


class Paced:
    """Passes lines on, one at a time, whichever thread they come from. Warnings and errors have as many again."""

    def __init__(self, log: Callable[[LogLine], None]) -> None:
        self._log, self._lock = log, threading.Lock()
        self._since, self._passed, self._left = time.monotonic(), 0, 0

    def __call__(self, line: LogLine) -> None:
        with self._lock:
            if time.monotonic() - self._since >= 60:
                self._begin()
            most = MOST_A_MINUTE * (2 if line.level in _ALWAYS else 1)
            if self._passed >= most:
                self._left += 1
                return
            self._passed += 1
            self._log(line)

    def close(self) -> None:
        with self._lock:
            self._begin()

    def _begin(self) -> None:
        if self._left:
            many = f"{self._left:,} log lines were left out: more than {MOST_A_MINUTE:,} came in a minute"
            self._log(LogLine("warning", many, "instep"))
        self._since, self._passed, self._left = time.monotonic(), 0, 0
