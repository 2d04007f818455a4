"""Progress and results of running tasks, through small files that the driver reads.

Accumulators stay at zero until a task ends and do not exist on Spark Connect; files work everywhere.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from instep.stage.spec import ChunkResult
from instep.stage.task import ChunkProgress, Counts


class TaskProgress:
    """Progress of one task: called by the task, at most a few times a second in the file."""

    def __init__(self, folder: str, task: int, interval: float = 0.3) -> None:
        self._file, self._interval = Path(folder) / f"{task}.json", interval
        self._done: dict[str, tuple[int, int]] = {}
        self._reported_at = time.monotonic()

    def __call__(self, progress: ChunkProgress) -> None:
        rows, size = self._done.get(progress.table, (0, 0))
        now = (rows + progress.rows, size + progress.bytes)
        if progress.done:
            self._done[progress.table] = now
        if progress.done or time.monotonic() - self._reported_at >= self._interval:
            self._tell({**self._done, progress.table: now})

    def _tell(self, counts: Counts) -> None:
        self._reported_at = time.monotonic()
        fresh = self._file.with_suffix(".new")
        with suppress(OSError):  # a full disk stops the data first, with a clear message
            fresh.write_text(json.dumps(counts))
            fresh.replace(self._file)


def collect(folder: str) -> dict[str, tuple[int, int]]:
    """Return the sum over all tasks."""
    total: dict[str, tuple[int, int]] = {}
    for file in Path(folder).glob("*.json"):
        with suppress(OSError, ValueError):
            for table, (rows, size) in json.loads(file.read_text()).items():
                before = total.get(table, (0, 0))
                total[table] = (before[0] + rows, before[1] + size)
    return total


def written(folder: str, task: int, attempt: int, results: Iterable[ChunkResult]) -> Iterator[ChunkResult]:
    """Yield the results of a task, each of which the driver can read as soon as it is there."""
    for number, result in enumerate(results):
        place = Path(folder) / f"{task}-{attempt}-{number}.result"
        with suppress(OSError):
            place.with_suffix(".new").write_bytes(pickle.dumps(result))
            place.with_suffix(".new").replace(place)
        yield result


class FreshResults:
    """The results in a folder that nobody has been given yet. Once a task is done again there are no more: results of
    two attempts are never mixed."""

    def __init__(self, folder: str) -> None:
        self._folder, self._given = Path(folder), set[str]()

    def take(self) -> list[ChunkResult]:
        places = [p for p in self._folder.glob("*.result") if p.name not in self._given]
        if any(p.name.split("-")[1] != "0" for p in self._folder.glob("*.result")):
            return []
        self._given.update(p.name for p in places)
        return [pickle.loads(p.read_bytes()) for p in places]
