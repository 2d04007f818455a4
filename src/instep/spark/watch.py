"""Progress of running tasks: each replaces a small file, the driver reads them all.

Accumulators stay at zero until a task ends and do not exist on Spark Connect; files work everywhere.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

from instep.stage.task import Counts, Progress


class TaskProgress:
    """What one task tells: called by the task, at most a few times a second in the file."""

    def __init__(self, folder: str, task: int, interval: float = 0.3) -> None:
        self._file, self._interval = Path(folder) / f"{task}.json", interval
        self._done: dict[str, tuple[int, int]] = {}
        self._told = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        rows, size = self._done.get(progress.table, (0, 0))
        now = (rows + progress.rows, size + progress.bytes)
        if progress.done:
            self._done[progress.table] = now
        if progress.done or time.monotonic() - self._told >= self._interval:
            self._tell({**self._done, progress.table: now})

    def _tell(self, counts: Counts) -> None:
        self._told = time.monotonic()
        fresh = self._file.with_suffix(".new")
        with suppress(OSError):  # a full disk stops the data first, with a clear message
            fresh.write_text(json.dumps(counts))
            fresh.replace(self._file)


def collect(folder: str) -> dict[str, tuple[int, int]]:
    """The sum over all tasks."""
    total: dict[str, tuple[int, int]] = {}
    for file in Path(folder).glob("*.json"):
        with suppress(OSError, ValueError):
            for table, (rows, size) in json.loads(file.read_text()).items():
                before = total.get(table, (0, 0))
                total[table] = (before[0] + rows, before[1] + size)
    return total
