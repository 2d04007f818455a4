"""Reads all chunks of all tables in one Spark job; the tasks write the files, only their names come back.

Runs a function over parts of work as one Spark job, one task a part: what is not read from a source.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from instep.errors import InstepError
from instep.spark.executors import check_witness, probe_file, slots
from instep.spark.failure import explain
from instep.spark.frames import FrameReader, extract_frames
from instep.spark.payload import check_size, job_tag, packed, unpacked
from instep.spark.task_progress import FreshResults, TaskProgress, collect, written
from instep.stage.preload import tell_imports
from instep.stage.spec import Chunk, ChunkResult, Reader, StageSpec, limits_of, pack, weight
from instep.stage.task import Counts, Report, run_chunks, task_count, totals
from instep.temporary import temporary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TASKS_PER_CORE = 2
_SMALL = 64 << 20
"""Bytes a core that are read in a few seconds."""
_SOON, _POLL = 0.1, 0.5
"""Seconds between two looks at a job, in its beginning and later."""
_SCHEMA = "result binary"


def extract(
    spark: SparkSession,
    reader: Reader,
    specs: Iterable[StageSpec],
    chunks: Sequence[Chunk],
    *,
    tasks: int = 0,
    progress: Callable[[Counts], None] | None = None,
    done: Callable[[list[ChunkResult]], None] | None = None,
) -> list[ChunkResult]:
    """Run one job over `chunks` and return one result each, in no order, or one with an `error` per failed table.

    `specs` names each table's StageSpec by `Chunk.table`. `tasks`: 0 for as many as `tasks_for` says; the reader's
    limits make them fewer. `progress` is told rows and bytes per table about twice a second, from this thread, and once
    at the end. A task whose worker dies runs again under other file names; only what a finished task returned is in the
    result. `done` is given results while others are still read, where tasks see this machine's files and none had to be
    done again. Raises InstepError when the job as a whole fails. KeyboardInterrupt cancels the job first.
    """
    if not chunks:
        return []
    if isinstance(reader, FrameReader):
        return extract_frames(spark, reader, specs, chunks, slots=cores(spark), progress=progress)
    limits = limits_of(reader)
    parts = pack(chunks, task_count(limits, tasks or tasks_for(chunks, cores(spark)), cores(spark)))
    share = limits.rows_per_second / len(parts)
    by_table = {spec.table: spec for spec in specs}
    progress_folder = temporary("progress") if progress else nullcontext("")
    beside = (spec.location.rpartition("/")[0] for spec in by_table.values())  # in it, a commit would sweep it away
    with progress_folder as folder, probe_file(beside, elsewhere(spark)) as seen:
        work = [_payload(reader, by_table, part, share) for part in parts]
        task = ExtractTask(tuple(work), folder, seen)
        fresh = FreshResults(folder)

        def tick() -> None:
            if progress:
                progress(collect(folder))
                if done:
                    done(fresh.new_results())

        rows = RunningJob(spark, task).run(tick)
        results = [result for row in rows for result in pickle.loads(row)]
        if progress:
            progress(totals(results))
    return results


def tasks_for(chunks: Iterable[Chunk], cores: int) -> int:
    """Return how many tasks read so much: two a core, so that one which takes longer does not leave the others idle,
    and one a core where starting a task would take longer than that."""
    small = sum(map(weight, chunks)) <= _SMALL * cores
    return cores if small else TASKS_PER_CORE * cores


def _payload(reader: Reader, specs: Mapping[str, StageSpec], part: Sequence[Chunk], share: float = 0) -> bytes:
    """Return what one task needs, and no other task's specs."""
    return packed((reader, {c.table: specs[c.table] for c in part}, list(part), share))


@dataclass(frozen=True)
class ExtractTask:
    """Task that is sent to the workers: called once per partition with its number, on Connect as the only row of a
    batch.

    `folder` is for progress where tasks see this machine's files; `seen` is a file that they have to see.
    """

    work: tuple[bytes, ...] = field(repr=False)
    folder: str
    seen: str = ""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.record_batch([pa.array([self.one(number)], pa.binary())], names=["result"])

    def one(self, number: int) -> bytes:
        from pyspark import TaskContext

        context = TaskContext.get()
        check_witness(self.seen)
        reader, specs, chunks, share = unpacked(self.work[number])
        attempt = context.attemptNumber() if context else 0
        if not (self.folder and Path(self.folder).is_dir()):
            return pickle.dumps(list(run_chunks(reader, specs, chunks, attempt, None, share)))
        progress = TaskProgress(self.folder, number)
        results = run_chunks(reader, specs, chunks, attempt, progress, share)
        done = pickle.dumps(list(written(self.folder, number, attempt, results)))
        progress.report()
        tell_imports()
        return done


class RunningJob:
    """The job on a thread of its own, so that this one can tell progress and be interrupted."""

    def __init__(self, spark: SparkSession, task: ExtractTask, what: str = "extract") -> None:
        self.spark, self.task, self.what = spark, task, what
        self.tag = job_tag()
        self.rows: list[bytes] = []
        self.error: BaseException | None = None

    def run(self, tick: Callable[[], None]) -> list[bytes]:
        thread = threading.Thread(target=self._collect, name=self.what, daemon=True)
        thread.start()
        begun = time.monotonic()
        try:
            while thread.is_alive():
                thread.join(min(_POLL, max(_SOON, (time.monotonic() - begun) / 10)))
                tick()
        except BaseException:
            self._stop(thread)
            raise
        if self.error is not None:
            raise self.error if isinstance(self.error, InstepError) else explain(self.error) from self.error
        return self.rows

    def _stop(self, thread: threading.Thread) -> None:
        """Cancel until it takes: a job that is not submitted yet cannot be cancelled."""
        for _ in range(20):
            self.cancel()
            thread.join(_POLL)
            if not thread.is_alive():
                return

    def _collect(self) -> None:
        try:
            check_size(self.spark, self.task.work)
            self._tagged()
            self.rows = self._plain() if _context(self.spark) else self._arrow()
        except BaseException as error:
            self.error = error

    def _plain(self) -> list[bytes]:
        """Run the tasks without SQL, whose first plan in a process takes half a second."""
        count = len(self.task.work)
        rows: list[bytes] = _context(self.spark).parallelize(range(count), count).map(self.task.one).collect()
        return rows

    def _arrow(self) -> list[bytes]:
        """Connect has nothing but SQL."""
        count = len(self.task.work)
        rows = self.spark.range(0, count, 1, count).mapInArrow(self.task, _SCHEMA).collect()
        return [bytes(row[0]) for row in rows]

    def _tagged(self) -> None:
        if context := _context(self.spark):
            context.addJobTag(self.tag)
            context.setJobDescription(self.what)
        else:
            self.spark.addTag(self.tag)

    def cancel(self) -> None:
        with suppress(Exception):
            if context := _context(self.spark):
                context.cancelJobsWithTag(self.tag)
            else:
                self.spark.interruptTag(self.tag)


def _context(spark: SparkSession) -> Any:
    """Return the SparkContext of a classic session, None on Connect."""
    return getattr(spark, "_sc", None)


def elsewhere(spark: SparkSession) -> bool:
    """Return whether tasks may run on other machines than this one."""
    context = _context(spark)
    return context is None or not context.master.startswith("local")


def cores(spark: SparkSession) -> int:
    """Return how many tasks run at a time."""
    return slots(spark)


Work = Callable[[Any, int, Report | None], Any]
"""(part, attempt, report) to a result; a function of a module, so that workers find it by its name."""


def run_parts(
    spark: SparkSession,
    work: Work,
    parts: Sequence[Any],
    progress: Callable[[Counts], None] | None = None,
    what: str = "rewrite",
) -> list[Any]:
    """Return the results in the order of the parts, which are picklable and may hold credentials. `what` names the
    job. `progress` gets rows and bytes by table about twice a second; what it raises cancels the job. A task whose
    worker dies runs again with a higher attempt. Raises InstepError when the job fails; KeyboardInterrupt cancels it
    first."""
    if not parts:
        return []
    with temporary("progress") as folder:
        payload = tuple(packed((work, number, part)) for number, part in enumerate(parts))
        job = RunningJob(spark, _RewritePart(payload, folder), what)
        results = dict(pickle.loads(row) for row in job.run(lambda: progress(collect(folder)) if progress else None))
    return [results[number] for number in range(len(parts))]


@dataclass(frozen=True)
class _RewritePart(ExtractTask):
    def one(self, number: int) -> bytes:
        from pyspark import TaskContext

        context = TaskContext.get()
        work, place, part = unpacked(self.work[number])
        progress = TaskProgress(self.folder, number) if Path(self.folder).is_dir() else None
        done = pickle.dumps((place, work(part, context.attemptNumber() if context else 0, progress)))
        if progress:
            progress.report()
        return done
