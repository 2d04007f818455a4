"""Folds the rows of chunks into a few results: each task reads its chunks in order over one connection.

The same work runs on threads of this process and as Spark tasks (see spark/fold.py). Results are handed on as they are
made, so that nobody holds those of a whole table.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from os import cpu_count
from typing import Any

import pyarrow as pa

from instep.stage.local import yielding_session
from instep.stage.spec import Chunk, Reader, limits_of, pack
from instep.stage.task import ChunkProgress, Counts, RateLimit, Report, read_chunk, task_count

Fold = Callable[[Iterator[pa.RecordBatch]], Iterable[Any]]
"""Picklable. Is given the batches of one task, columns by position; every result is small enough for memory."""
CountsCallback = Callable[[Counts], None]
MEMORY = "256MB"
"""The memory that DuckDB in a task may take."""
SLICE_ROWS, SLICE_BYTES = 250_000, 32 << 20
"""The bytes of its rows that a task has in memory while it works on them."""
_POLL = 0.5


@dataclass(frozen=True)
class Scan:
    """Rows that tasks read: the parts, and what opens them."""

    reader: Reader
    chunks: Sequence[Chunk]


@dataclass(frozen=True)
class FoldPart:
    """One task's chunks; `share` is its part of the rows a second that are allowed, 0 without a bound."""

    reader: Reader = field(repr=False)
    chunks: Sequence[Chunk]
    fold: Fold
    share: float = 0


def fold_parts(scan: Scan, fold: Fold, requested: int, at_once: int) -> list[FoldPart]:
    """Divide a scan among tasks: as many as are `requested`, within the reader's limits."""
    if not scan.chunks:
        return []
    limits = limits_of(scan.reader)
    parts = pack(scan.chunks, task_count(limits, requested, at_once))
    return [FoldPart(scan.reader, part, fold, limits.rows_per_second / len(parts)) for part in parts]


def run_part(part: FoldPart, report: Report | None = None) -> Iterator[Any]:
    """Yield the results of one task. `report` is told rows and bytes, and may raise to stop it."""
    rate_limit = RateLimit(part.share)

    def batches() -> Generator[pa.RecordBatch, None, None]:
        with yielding_session(part.reader) as session:
            for chunk in part.chunks:
                rows = size = 0
                with closing(read_chunk(session, chunk)) as read:
                    for batch in read:
                        yield batch
                        rows, size = rows + len(batch), size + batch.nbytes
                        for wait in rate_limit.waits(len(batch)):
                            time.sleep(wait)
                        if report is not None:
                            report(ChunkProgress(chunk.table, rows, size))
                if report is not None:
                    report(ChunkProgress(chunk.table, rows, size, 1))

    with closing(batches()) as read:
        yield from part.fold(read)


def fold_locally(scan: Scan, fold: Fold, *, threads: int = 0, progress: CountsCallback | None = None) -> Iterator[Any]:
    """Yield the results of all tasks, in no order, from threads of this process (0: one a core)."""
    cores = threads or cpu_count() or 1
    tally = _FoldProgress(progress)
    parts = fold_parts(scan, fold, cores, cores)
    if len(parts) < 2:
        for part in parts:
            yield from run_part(part, tally.add)
        return
    results: queue.Queue[Any] = queue.Queue(2 * len(parts))
    tally.on_progress = None  # progress is reported from one thread

    def work(part: FoldPart) -> None:
        try:
            for result in run_part(part, tally.add):
                _put(results, (result, None), tally.stopped)
            _put(results, (None, _END), tally.stopped)
        except BaseException as error:
            with suppress(_Abandoned):
                _put(results, (None, error), tally.stopped)

    with ThreadPoolExecutor(len(parts), thread_name_prefix="fold") as pool:
        try:
            left = len([pool.submit(work, part) for part in parts])
            while left:
                with suppress(queue.Empty):
                    result, error = results.get(timeout=_POLL)
                    if error is None:
                        yield result
                    elif error is _END:
                        left -= 1
                    else:
                        raise error
                if progress is not None:
                    progress(tally.counts())
        finally:
            tally.stopped.set()


class _Abandoned(BaseException):
    """Raised in threads whose results nobody waits for."""


_END = _Abandoned()


def _put(results: queue.Queue[Any], item: tuple[Any, BaseException | None], stopped: threading.Event) -> None:
    while not stopped.is_set():
        with suppress(queue.Full):
            results.put(item, timeout=_POLL)
            return
    raise _Abandoned


class _FoldProgress:
    """Rows and bytes of all tasks together; `on_progress` is called about twice a second."""

    def __init__(self, on_progress: CountsCallback | None) -> None:
        self.stopped = threading.Event()
        self.on_progress, self._at = on_progress, time.monotonic()
        self._lock = threading.Lock()
        self._done: dict[str, tuple[int, int]] = {}
        self._running: dict[int, ChunkProgress] = {}

    def add(self, progress: ChunkProgress) -> None:
        if self.stopped.is_set():
            raise _Abandoned
        with self._lock:
            if progress.done:
                rows, size = self._done.get(progress.table, (0, 0))
                self._done[progress.table] = (rows + progress.rows, size + progress.bytes)
                self._running.pop(threading.get_ident(), None)
            else:
                self._running[threading.get_ident()] = progress
        if self.on_progress is not None and time.monotonic() - self._at >= _POLL:
            self._at = time.monotonic()
            self.on_progress(self.counts())

    def counts(self) -> Counts:
        with self._lock:
            total = dict(self._done)
            for running in self._running.values():
                rows, size = total.get(running.table, (0, 0))
                total[running.table] = (rows + running.rows, size + running.bytes)
        return total


def slices(batches: Iterable[pa.RecordBatch], rows: int = SLICE_ROWS, size: int = SLICE_BYTES) -> Iterator[pa.Table]:
    """Yield batches joined to tables of about so many rows, or bytes if they are reached first."""
    parts, count, total = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        parts, count, total = [*parts, batch], count + len(batch), total + batch.nbytes
        if count >= rows or total >= size:
            yield pa.Table.from_batches(parts)
            parts, count, total = [], 0, 0
    if parts:
        yield pa.Table.from_batches(parts)
