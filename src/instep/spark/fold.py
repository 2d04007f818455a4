"""Folds the rows of chunks in one Spark job, a task for each part: what `stage/fold.py` does on threads."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from instep.errors import InstepError, ReadError
from instep.spark.extract import TASKS_PER_CORE, cores, run_parts
from instep.spark.failure import explain
from instep.spark.frames import FrameReader, Settle, SparkBatches
from instep.spark.payload import check_size, job_tag, packed, unpacked
from instep.stage.fold import Fold, FoldPart, Scan, fold_parts, run_part
from instep.stage.key_hashes import KeyTotals
from instep.stage.spec import Chunk
from instep.stage.task import Counts, Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RESULT, _HASHED = "result binary", "a bigint, b bigint, absent boolean"
WAVE_ROWS = 8_000_000
"""The most rows that the tasks of one job hand to the driver, about."""


def fold_on_spark(
    spark: SparkSession,
    scan: Scan,
    fold: Fold,
    *,
    returned: float = 0,
    progress: Callable[[Counts], None] | None = None,
) -> Iterator[Any]:
    """Yield the results of all tasks. `returned`: the share of the rows that results have; the driver holds no more
    than WAVE_ROWS of them at a time, so that many rows take several jobs."""
    for chunks in _waves(scan.chunks, returned):
        wave = Scan(scan.reader, chunks)
        if isinstance(scan.reader, FrameReader):
            yield from _fold_frames(spark, scan.reader, chunks, fold)
            continue
        slots = cores(spark)
        parts = fold_parts(wave, fold, TASKS_PER_CORE * slots, slots)
        for results in run_parts(spark, _all_of, parts, progress, "compare"):
            yield from results


def _all_of(part: FoldPart, attempt: int, report: Report | None) -> list[Any]:
    return list(run_part(part, report))


def _waves(chunks: Sequence[Chunk], returned: float) -> Iterator[list[Chunk]]:
    """Divide chunks among jobs; those of one lane are of one view, and stay together."""
    if not returned or any(chunk.lane for chunk in chunks):
        yield list(chunks)
        return
    wave, rows = list[Chunk](), 0.0
    for chunk in chunks:
        if wave and rows + chunk.rows * returned > WAVE_ROWS:
            yield wave
            wave, rows = [], 0.0
        wave.append(chunk)
        rows += chunk.rows * returned
    yield wave


@dataclass(frozen=True)
class _FoldParts:
    """Task over a frame of numbers: each is one part."""

    work: tuple[bytes, ...] = field(repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from run_part(unpacked(self.work[number]))


@dataclass(frozen=True)
class _FoldFrames:
    """Task over the partitions of a source's data frame: each is one chunk. `pickled`: results are objects."""

    work: bytes = field(repr=False)
    pickled: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        settle: Settle
        settle, chunks, fold = unpacked(self.work)
        for result in run_part(FoldPart(SparkBatches(batches, settle), [chunks[context.partitionId()]], fold)):
            made = pa.array([pickle.dumps(result)], pa.binary()) if self.pickled else None
            yield result if made is None else pa.record_batch([made], names=["result"])


def _frame(spark: SparkSession, reader: FrameReader, chunks: Sequence[Chunk], fold: Fold, schema: str) -> DataFrame:
    task = _FoldFrames(packed((reader.settle, list(chunks), fold)), schema == _RESULT)
    check_size(spark, [task.work])
    return reader.frame(spark, chunks).mapInArrow(task, schema)


def _fold_frames(spark: SparkSession, reader: FrameReader, chunks: Sequence[Chunk], fold: Fold) -> Iterator[Any]:
    for row in _collected(spark, reader, lambda: _frame(spark, reader, chunks, fold, _RESULT)):
        yield pickle.loads(bytes(row[0]))


def _collected(spark: SparkSession, reader: object, frame: Callable[[], DataFrame]) -> list[Any]:
    """Return the rows of a frame. Raises InstepError in the words of the source where it is the source that failed."""
    tag = job_tag()
    spark.addTag(tag)
    try:
        return list(frame().collect())
    except KeyboardInterrupt:
        with suppress(Exception):  # it may be over
            spark.interruptTag(tag)
        raise
    except Exception as error:
        if isinstance(error, InstepError):
            raise
        if isinstance(reader, FrameReader) and ("java.sql." in str(error) or "SQLException" in str(error)):
            hint = "check it with `instep source test`, then run it again"
            raise ReadError(f"reading failed: {reader.fault(error)}", hint=hint) from error
        raise explain(error) from error
    finally:
        with suppress(Exception):  # the JVM may be gone
            spark.removeTag(tag)


def count_keys_on_spark(spark: SparkSession, scan: Scan, hashes: Fold) -> KeyTotals:
    """Count rows by their hashed keys: each key's rows meet in one task, and the driver gets three numbers."""
    if not scan.chunks:
        return KeyTotals()

    def frame() -> DataFrame:
        if isinstance(scan.reader, FrameReader):
            return _frame(spark, scan.reader, scan.chunks, hashes, _HASHED)
        slots = cores(spark)
        task = _FoldParts(tuple(packed(part) for part in fold_parts(scan, hashes, TASKS_PER_CORE * slots, slots)))
        check_size(spark, task.work)
        return spark.range(0, len(task.work), 1, len(task.work)).mapInArrow(task, _HASHED)

    def totals() -> DataFrame:
        grouped = frame().groupBy("a", "b", "absent").count()
        return grouped.selectExpr("sum(count)", "sum(if(absent, 0, count - 1))", "sum(if(absent, count, 0))")

    [row] = _collected(spark, scan.reader, totals)
    return KeyTotals(*(int(value or 0) for value in row))
