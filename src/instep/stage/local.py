"""Reads all chunks of all tables in this process, without Spark: for small syncs, and where there is no JVM.

Reading whole tables in this process, so that others need not wait for them: piece by piece, each tried again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import pyarrow as pa

from instep.errors import LockYielded
from instep.stage.conform import Conformer
from instep.stage.spec import Chunk, ChunkResult, Reader, ReadSession, StageSpec, limits_of, pack
from instep.stage.task import (
    CLOSINGS,
    YIELDS,
    ChunkProgress,
    Counts,
    RateLimit,
    pause,
    refused_records,
    run_chunks,
    task_count,
    totals,
)

_POLL = 0.5


class _Stopped(BaseException):
    """The job was stopped. A BaseException: to a task an Exception is the failure of one table, and it goes on."""


def extract_locally(
    reader: Reader,
    specs: Iterable[StageSpec],
    chunks: Sequence[Chunk],
    *,
    threads: int = 0,
    progress: Callable[[Counts], None] | None = None,
    done: Callable[[list[ChunkResult]], None] | None = None,
) -> list[ChunkResult]:
    """Read `chunks` with `threads` connections (0: one a core), within the reader's limits, and returns one result
    each, in no order, or one with an `error` per failed table.

    `specs` names each table's StageSpec by `Chunk.table`. `progress` is told rows and bytes per table about twice a
    second, from this thread, and once at the end. What interrupts this thread stops the others first. `done` is given
    each result once, from this thread, while others are still read.
    """
    if not chunks:
        return []
    on_progress, on_done = progress or _silent, done or _silent
    limits, requested = limits_of(reader), threads or os.cpu_count() or 1
    parts = pack(chunks, task_count(limits, requested, requested))
    share = limits.rows_per_second / len(parts)
    by_table = {spec.table: spec for spec in specs}
    if len(parts) == 1:
        results = []
        for result in run_chunks(reader, by_table, parts[0], 0, _Tally(on_progress), share):
            results.append(result)
            on_done([result])
    else:
        results = _run_parts(
            lambda part, report: run_chunks(reader, by_table, part, 0, report, share),
            parts,
            on_progress,
            on_done,
        )
    on_progress(totals(results))
    return results


def _run_parts(
    read: Callable[[Sequence[Chunk], _Tally], Iterator[ChunkResult]],
    parts: Sequence[Sequence[Chunk]],
    on_progress: Callable[[Counts], None],
    on_done: Callable[[list[ChunkResult]], None],
) -> list[ChunkResult]:
    """Run each part on a thread of its own, while this one reports progress and hands on what is done."""
    tallies, fresh = [_Tally() for _ in parts], _NewResults()
    with ThreadPoolExecutor(len(parts), thread_name_prefix="extract") as pool:
        try:
            running = [
                pool.submit(lambda p, t: [fresh.add(r) for r in read(p, t)], part, tally)
                for part, tally in zip(parts, tallies, strict=True)
            ]
            while wait(running, timeout=_POLL).not_done:
                on_progress(_sum(tallies))
                on_done(fresh.drain())
            results = [result for future in running for result in future.result()]
            on_done(fresh.drain())
            return results
        except BaseException:
            for tally in tallies:
                tally.stop.set()
            raise


class _Tally:
    """Progress of one task; `on_progress`, if given, is called about twice a second."""

    def __init__(self, on_progress: Callable[[Counts], None] | None = None) -> None:
        self.stop = threading.Event()
        self.now: Counts = {}
        self._done: dict[str, tuple[int, int]] = {}
        self._on_progress, self._reported_at = on_progress, time.monotonic()

    def __call__(self, progress: ChunkProgress) -> None:
        if self.stop.is_set():
            raise _Stopped
        rows, size = self._done.get(progress.table, (0, 0))
        reached = (rows + progress.rows, size + progress.bytes)
        if progress.done:
            self._done[progress.table] = reached
        self.now = {**self._done, progress.table: reached}
        if self._on_progress is not None and time.monotonic() - self._reported_at >= _POLL:
            self._reported_at = time.monotonic()
            self._on_progress(self.now)


class _NewResults:
    """Results that nobody has been given yet."""

    def __init__(self) -> None:
        self._lock, self._results = threading.Lock(), list[ChunkResult]()

    def add(self, result: ChunkResult) -> ChunkResult:
        with self._lock:
            self._results.append(result)
        return result

    def drain(self) -> list[ChunkResult]:
        with self._lock:
            fresh, self._results = self._results, []
        return fresh


def _sum(tallies: Iterable[_Tally]) -> Counts:
    total: dict[str, tuple[int, int]] = {}
    for table, (rows, size) in ((t, c) for tally in tallies for t, c in tally.now.items()):
        before = total.get(table, (0, 0))
        total[table] = (before[0] + rows, before[1] + size)
    return total


def _silent(unused: object) -> None:
    pass


def conformed_rows(
    reader: Reader, spec: StageSpec, chunks: Iterable[Chunk], *, rows_per_second: float = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `chunks` with the spec's schema, at no more than `rows_per_second` (0: no bound).

    Raises StageError for a record that is no row, whatever the spec does with values.
    """
    rate_limit, strict = RateLimit(rows_per_second), replace(spec, on_invalid_value="fail")
    with yielding_session(reader) as session:
        for chunk in chunks:
            conformer = Conformer(spec)
            for batch in session.read(chunk):
                refused_records(batch, strict)
                yield conformer.conform(batch).batch
                for wait in rate_limit.waits(len(batch)):
                    time.sleep(wait)


@contextmanager
def yielding_session(reader: Reader) -> Iterator[ReadSession]:
    """Open a session of the reader that gives statements up for others, and asks again."""
    with ExitStack() as stack:
        yield _Session(reader, stack)


class _Session:
    def __init__(self, reader: Reader, stack: ExitStack) -> None:
        self._reader, self._stack = reader, stack
        self._session: ReadSession | None = None

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        for piece in chunk.pieces:
            yield from self._whole(replace(chunk, query="", pieces=(piece,)))
        if not chunk.pieces:
            yield from self._whole(chunk)

    def _whole(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield a chunk's rows; it is read again only while none were handed on."""
        for tried in range(YIELDS + 1):
            begun = False
            try:
                for batch in self._open().read(chunk):
                    begun = True
                    yield batch
                return
            except LockYielded as error:
                if error.broken:
                    self._close()
                if error.closed and tried == CLOSINGS:
                    raise error.closed from None
                if begun or tried == YIELDS:
                    raise
            time.sleep(pause(tried))

    def _open(self) -> ReadSession:
        if self._session is None:
            self._session = self._stack.enter_context(self._reader.open())
        return self._session

    def _close(self) -> None:
        self._session = None
        with suppress(Exception):  # it was ended by the server
            self._stack.close()
