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
from instep.stage.spec import Chunk
from instep.stage.task import Counts, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
class _FoldFrames:
    """Task over the partitions of a data frame: one is one chunk."""

    work: bytes = field(repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        settle: Settle
        settle, chunks, fold = unpacked(self.work)
        part = FoldPart(SparkBatches(batches, settle), [chunks[context.partitionId()]], fold)
        for result in run_part(part):
            yield pa.record_batch([pa.array([pickle.dumps(result)], pa.binary())], names=["result"])


def _fold_frames(spark: SparkSession, reader: FrameReader, chunks: Sequence[Chunk], fold: Fold) -> Iterator[Any]:
    task, tag = _FoldFrames(packed((reader.settle, list(chunks), fold))), job_tag()
    check_size(spark, [task.work])
    spark.addTag(tag)
    try:
        rows = reader.frame(spark, chunks).mapInArrow(task, "result binary").collect()
    except KeyboardInterrupt:
        with suppress(Exception):  # it may be over
            spark.interruptTag(tag)
        raise
    except Exception as error:
        if isinstance(error, InstepError):
            raise
        if "java.sql." in str(error) or "SQLException" in str(error):
            what = f"{chunks[0].table}: reading failed: {reader.fault(error)}"
            raise ReadError(what, hint="check it with `instep source test`") from error
        raise explain(error) from error
    finally:
        with suppress(Exception):  # the JVM may be gone
            spark.removeTag(tag)
    for row in rows:
        yield pickle.loads(bytes(row[0]))
