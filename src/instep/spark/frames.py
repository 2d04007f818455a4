"""Stages the rows of data frames: for sources that only Spark can read. One job a table, several at a time."""

from __future__ import annotations

import os
import pickle
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from instep.errors import InstepError
from instep.spark.failure import explain
from instep.spark.payload import check_size, job_tag, packed, unpacked
from instep.spark.task_progress import TaskProgress, collect
from instep.stage.spec import Chunk, ChunkResult, StageSpec, limits_of
from instep.stage.task import Counts, run_chunks, totals
from instep.temporary import temporary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_POLL = 0.5
BatchNormalizer = Callable[[Chunk, pa.RecordBatch], pa.RecordBatch]


@runtime_checkable
class FrameReader(Protocol):
    """A reader whose chunks are the partitions of data frames."""

    def frame(self, spark: SparkSession, chunks: Sequence[Chunk]) -> DataFrame:
        """Return one partition for each of the chunks of one table, in their order."""
        ...

    @property
    def batch_normalizer(self) -> BatchNormalizer:
        """Makes a partition's batch what `read` of a session yields; travels to tasks, so it holds no login."""
        ...

    def failure(self, error: BaseException, subject: str) -> InstepError | None:
        """Return the error of a job in which the source failed, without secrets: SourceLost if the source has gone.
        None where Spark itself failed. `subject` names what was being read."""
        ...


@dataclass(frozen=True)
class SparkBatches:
    """Reads what Spark has read. A partition comes once: what fails is read again by Spark's own retry."""

    batches: Iterable[pa.RecordBatch]
    normalize: BatchNormalizer

    @contextmanager
    def open(self) -> Iterator[SparkBatches]:
        yield self

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        return (self.normalize(chunk, batch) for batch in self.batches if len(batch))


@dataclass(frozen=True)
class FrameTask:
    """Task that is sent to the workers: called once for each partition with its batches."""

    work: bytes = field(repr=False)
    folder: str
    first: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        normalize, spec, share, chunks = unpacked(self.work)
        progress = None
        if self.folder and Path(self.folder).is_dir():
            progress = TaskProgress(self.folder, self.first + number)
        reader = SparkBatches(batches, normalize)
        done = list(run_chunks(reader, {spec.table: spec}, [chunks[number]], context.attemptNumber(), progress, share))
        for _ in reader.batches:  # what is left of a part that failed
            pass
        if progress:
            progress.report()
        yield pa.record_batch([pa.array([pickle.dumps(done)], pa.binary())], names=["result"])


def extract_frames(
    spark: SparkSession,
    reader: Any,
    specs: Iterable[StageSpec],
    chunks: Sequence[Chunk],
    *,
    slots: int,
    progress: Callable[[Counts], None] | None = None,
) -> list[ChunkResult]:
    """Return one result each, in no order, or one with an `error` per failed table; the other tables go on.

    At most as many partitions are read at a time as the session has `slots`, or the reader's limits allow.
    """
    by_table: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        by_table[chunk.table].append(chunk)
    by_name, limits = {spec.table: spec for spec in specs}, limits_of(reader)
    room = min(slots, limits.connections or slots)
    share = limits.rows_per_second / max(1, min(room, len(chunks)))
    work, first = [], 0
    with temporary("progress") if progress else nullcontext("") as folder:
        for table, own in by_table.items():
            payload = packed((reader.batch_normalizer, by_name[table], share, own))
            work.append(_TableJob(spark, reader, own, FrameTask(payload, folder, first)))
            first += len(own)
        results = _all(
            work, _ReadSlots(limits.connections), slots, lambda: progress(collect(folder)) if progress else None
        )
    if progress:
        progress(totals(results))
    return results


@dataclass(frozen=True)
class _TableJob:
    spark: SparkSession
    reader: FrameReader
    chunks: Sequence[Chunk]
    task: FrameTask
    tag: str = field(default_factory=lambda: job_tag())

    def run(self, room: _ReadSlots, stopped: threading.Event) -> list[ChunkResult]:
        with room.reserve(len(self.chunks)):
            if stopped.is_set():
                return []
            try:
                check_size(self.spark, [self.task.work])
                self.spark.addTag(self.tag)
                rows = self.reader.frame(self.spark, self.chunks).mapInArrow(self.task, "result binary").collect()
                return [result for row in rows for result in pickle.loads(bytes(row[0]))]
            except Exception as error:
                first = self.chunks[0]
                failure = self.failure(error)
                kind = type(failure).__name__
                return [ChunkResult(first.table, first.number, 0, (), error=str(failure), kind=kind)]
            finally:
                with suppress(Exception):  # the JVM may be gone
                    self.spark.removeTag(self.tag)

    def failure(self, error: BaseException) -> InstepError:
        """Return what the source said, where it is the source that failed."""
        if isinstance(error, InstepError):
            return error
        return self.reader.failure(error, self.chunks[0].table) or explain(error)

    def cancel(self) -> None:
        with suppress(Exception):  # it may be over
            self.spark.interruptTag(self.tag)


class _ReadSlots:
    """Lets so many partitions be read at a time (0: all); a table waits until there is room for all of its own."""

    def __init__(self, size: int) -> None:
        self.size = self.free = size
        self._change = threading.Condition()

    @contextmanager
    def reserve(self, parts: int) -> Iterator[None]:
        requested = min(parts, self.size)
        with self._change:
            self._change.wait_for(lambda: self.free >= requested)
            self.free -= requested
        try:
            yield
        finally:
            with self._change:
                self.free += requested
                self._change.notify_all()


def _all(work: Sequence[_TableJob], room: _ReadSlots, slots: int, tick: Callable[[], None]) -> list[ChunkResult]:
    """Return the biggest tables first; this thread tells progress, and stops the others when it is interrupted."""
    stopped = threading.Event()
    ordered = sorted(work, key=lambda job: -len(job.chunks))
    with ThreadPoolExecutor(min(len(work), 2 * slots, 4 * (os.cpu_count() or 1)), thread_name_prefix="frame") as pool:
        running = [pool.submit(job.run, room, stopped) for job in ordered]
        try:
            while wait(running, timeout=_POLL).not_done:
                tick()
        except BaseException:
            stopped.set()
            for job in work:
                job.cancel()
            raise
        return [result for done in running for result in done.result()]
