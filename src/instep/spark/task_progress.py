"""Progress and results of running tasks, through small files that the driver reads.

Accumulators stay at zero until a task ends and do not exist on Spark Connect; files work everywhere.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from instep.stage.spec import ChunkResult
from instep.stage.task import ChunkProgress

_LENGTH = 8
"""Bytes of the length of a result."""


class TaskProgress:
    """Progress of one task: called by the task, at most a few times a second in the file, and once at its end."""

    def __init__(self, folder: str, task: int, interval: float = 0.3) -> None:
        self._file, self._interval = Path(folder) / f"{task}.json", interval
        self._done: dict[str, tuple[int, int]] = {}
        self._last: dict[str, tuple[int, int]] = {}
        """Counts of the table that was reported last, its open chunk included."""
        self._reported_at = time.monotonic()

    def __call__(self, progress: ChunkProgress) -> None:
        rows, size = self._done.get(progress.table, (0, 0))
        now = (rows + progress.rows, size + progress.bytes)
        if progress.done:
            self._done[progress.table] = now
        self._last = {progress.table: now}
        if time.monotonic() - self._reported_at >= self._interval:
            self.report()

    def report(self) -> None:
        """Replace the file by one of all that was read so far."""
        self._reported_at = time.monotonic()
        fresh = self._file.with_suffix(".new")
        with suppress(OSError):  # a full disk stops the data first, with a clear message
            fresh.write_text(json.dumps({**self._done, **self._last}))
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
    """Yield the results of a task, each of which the driver can read as soon as it is there: one file a task, each
    result behind its length."""
    with ExitStack() as stack:
        file: BinaryIO | None = None
        with suppress(OSError):
            file = stack.enter_context((Path(folder) / f"{task}-{attempt}.results").open("ab", buffering=0))
        for result in results:
            if file is not None:
                data = pickle.dumps(result)
                data = len(data).to_bytes(_LENGTH, "big") + data
                whole = False
                with suppress(OSError):
                    whole = file.write(data) == len(data)
                if not whole:  # a part of a result may be there: it is the last
                    file = None
            yield result


class FreshResults:
    """The results in a folder that nobody has been given yet. Once a task is done again there are no more: results of
    two attempts are never mixed."""

    def __init__(self, folder: str) -> None:
        self._folder, self._read = Path(folder), dict[str, int]()

    def new_results(self) -> list[ChunkResult]:
        places = list(self._folder.glob("*.results"))
        if any(place.stem.split("-")[1] != "0" for place in places):
            return []
        return [result for place in places for result in self._of(place)]

    def _of(self, place: Path) -> Iterator[ChunkResult]:
        with place.open("rb") as file:
            file.seek(self._read.get(place.name, 0))
            fresh = file.read()
        at = 0
        while len(fresh) >= (begin := at + _LENGTH):
            end = begin + int.from_bytes(fresh[at:begin], "big")
            if end > len(fresh):
                break
            yield pickle.loads(fresh[begin:end])
            at = end
        self._read[place.name] = self._read.get(place.name, 0) + at
