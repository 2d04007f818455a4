"""Folds the rows of chunks in one Spark job, a task for each part: what `stage/fold.py` does on threads."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from instep.errors import InstepError
from instep.spark.extract import TASKS_PER_CORE, ExtractTask, RunningJob, cores, run_parts
from instep.spark.failure import explain
from instep.spark.frames import BatchNormalizer, FrameReader, SparkBatches
from instep.spark.payload import check_size, job_tag, packed, unpacked
from instep.spark.task_progress import TaskProgress, collect
from instep.stage.fold import Fold, FoldPart, Scan, fold_parts, run_part
from instep.stage.key_hashes import ColumnSides, ColumnTotals, Hashes, KeyTotals, Side
from instep.stage.spec import Chunk
from instep.stage.task import Counts, Report
from instep.temporary import temporary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RESULT, _HASHED, _SIDE = "result binary", "a bigint, b bigint, absent boolean", "a bigint, b bigint, c bigint"
DRIVER_ROWS, DRIVER_BYTES = 8_000_000, 64 << 20
"""So many rows are handed to the driver at once; results of more, or of nobody knows how many, stay on the disks of the
executors, and the driver takes so many bytes of them at a time."""


def fold_on_spark(
    spark: SparkSession,
    scan: Scan,
    fold: Fold,
    *,
    returned: float = 0,
    progress: Callable[[Counts], None] | None = None,
) -> Iterator[Any]:
    """Yield the results of all tasks, in no order. `returned`: the share of the rows that results have."""
    many = returned > 0 and not 0 < _rows(scan.chunks) * returned <= DRIVER_ROWS
    if isinstance(scan.reader, FrameReader):
        yield from _fold_frames(spark, scan.reader, scan.chunks, fold, stored=many)
        return
    slots = cores(spark)
    parts = fold_parts(scan, fold, TASKS_PER_CORE * slots, slots)
    if many and parts:
        with temporary("progress") as folder:
            task = _FoldTask(tuple(packed(part) for part in parts), folder)
            job = _StoringJob(spark, task, "compare")
            try:
                [(size,)] = job.run(lambda: progress(collect(folder)) if progress else None)
                yield from _streamed(job.frame, size)
            finally:
                _drop(job.frame)
        return
    for results in run_parts(spark, _all_of, parts, progress, "compare"):
        yield from results


def _all_of(part: FoldPart, attempt: int, report: Report | None) -> list[Any]:
    return list(run_part(part, report))


def _rows(chunks: Sequence[Chunk]) -> int:
    """Return how many rows these are; 0 if it is not known of each."""
    return sum(chunk.rows for chunk in chunks) if all(chunk.rows for chunk in chunks) else 0


@dataclass(frozen=True)
class _FoldTask(ExtractTask):
    """Task over a frame of numbers: each is one part, and each of its results a row."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                progress = TaskProgress(self.folder, number) if Path(self.folder).is_dir() else None
                for result in run_part(unpacked(self.work[number]), progress):
                    yield _row(result)
                if progress:
                    progress.report()


def _row(result: Any) -> pa.RecordBatch:
    return pa.record_batch([pa.array([pickle.dumps(result)], pa.binary())], names=["result"])


class _StoringJob(RunningJob):
    """Job whose results are stored in its `frame`; it returns how many bytes they are."""

    frame: DataFrame | None = None

    def _plain(self) -> list[Any]:
        return self._arrow()

    def _arrow(self) -> list[Any]:
        count = len(self.task.work)
        self.frame = _stored(self.spark.range(0, count, 1, count).mapInArrow(self.task, _RESULT))
        return _size(self.frame).collect()


def _stored(frame: DataFrame) -> DataFrame:
    """Return a frame whose rows stay on the disks of the executors once they are made."""
    from pyspark import StorageLevel

    return frame.persist(StorageLevel.DISK_ONLY)


def _size(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("coalesce(sum(length(result)), 0)")


def _streamed(frame: DataFrame | None, size: int) -> Iterator[Any]:
    """Yield the results that are stored, taking them from the executors part by part."""
    assert frame is not None, "the job has stored them"
    try:
        for row in frame.repartition(-(-size // DRIVER_BYTES) or 1).toLocalIterator():
            yield pickle.loads(bytes(row[0]))
    except InstepError:
        raise
    except Exception as error:
        raise explain(error) from error


def _drop(frame: DataFrame | None) -> None:
    with suppress(Exception):  # the session may have ended
        if frame is not None:
            frame.unpersist()


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
    """Task over the partitions of a source's data frame: each is one chunk."""

    work: bytes = field(repr=False)
    pickled: bool
    """Results are objects."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        settle: BatchNormalizer
        settle, chunks, fold = unpacked(self.work)
        for result in run_part(FoldPart(SparkBatches(batches, settle), [chunks[context.partitionId()]], fold)):
            yield _row(result) if self.pickled else result


def _frame(spark: SparkSession, reader: FrameReader, chunks: Sequence[Chunk], fold: Fold, schema: str) -> DataFrame:
    task = _FoldFrames(packed((reader.batch_normalizer, list(chunks), fold)), schema == _RESULT)
    check_size(spark, [task.work])
    return reader.frame(spark, chunks).mapInArrow(task, schema)


def _fold_frames(
    spark: SparkSession, reader: FrameReader, chunks: Sequence[Chunk], fold: Fold, *, stored: bool
) -> Iterator[Any]:
    if not stored:
        for row in _collected(spark, reader, lambda: _frame(spark, reader, chunks, fold, _RESULT)):
            yield pickle.loads(bytes(row[0]))
        return
    frames: list[DataFrame] = []

    def size() -> DataFrame:
        frames.append(_stored(_frame(spark, reader, chunks, fold, _RESULT)))
        return _size(frames[0])

    try:
        [(bytes_stored,)] = _collected(spark, reader, size)
        yield from _streamed(frames[0], bytes_stored)
    finally:
        for frame in frames:
            _drop(frame)


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
        failure = reader.failure(error, "the source") if isinstance(reader, FrameReader) else None
        raise failure or explain(error) from error
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


def differing_on_spark(spark: SparkSession, left: Side, right: Side, most: int) -> Hashes | None:
    """Return the hashes of keys that one of two sides has alone, or with other values; None if they are more than
    `most`. Equal hashes meet in one task, and the driver gets those that are left over."""

    def differing() -> DataFrame:
        sides = [
            _folded(spark, *side, _SIDE).selectExpr("*", f"{sign} AS side") for side, sign in ((left, 1), (right, -1))
        ]
        both = sides[0].unionAll(sides[1]).groupBy("a", "b", "c").agg({"side": "sum"})
        return both.filter("`sum(side)` <> 0").select("a").distinct().limit(most + 1)

    rows = _collected(spark, left[0].reader, differing)
    return np.sort(np.array([row[0] for row in rows], np.int64)) if len(rows) <= most else None


def _folded(spark: SparkSession, scan: Scan, fold: Fold, schema: str) -> DataFrame:
    """Return what tasks make of the rows of a scan, as rows of this schema."""
    slots = cores(spark)
    task = _FoldParts(tuple(packed(part) for part in fold_parts(scan, fold, TASKS_PER_CORE * slots, slots)))
    check_size(spark, task.work)
    return spark.range(0, len(task.work), 1, max(len(task.work), 1)).mapInArrow(task, schema)


def superseded_on_spark(
    spark: SparkSession, scan: Scan, places: Fold, pack: Callable[[Any], bytes], bits: int
) -> list[tuple[int, int, bytes]]:
    """Return (segment, count, what `pack` makes of them) of the places of rows whose hashed key a row at a later place
    has, too. A segment has the places that share all but the last `bits`. `pack` is a function of a module."""

    def superseded() -> DataFrame:
        rows = _folded(spark, scan, places, "a bigint, b bigint, place bigint")
        chosen = rows.selectExpr("place", "max(place) OVER (PARTITION BY a, b) AS newest").where("place < newest")
        segments = chosen.selectExpr(f"shiftright(place, {bits}) AS segment", "place").groupBy("segment")
        schema = "segment bigint, count bigint, packed binary"
        return segments.applyInArrow(lambda rows: _packed_places(rows, pack), schema)

    return [(row[0], row[1], bytes(row[2])) for row in _collected(spark, scan.reader, superseded)]


def _packed_places(rows: pa.Table, pack: Callable[[Any], bytes]) -> pa.Table:
    segment, places = rows.column("segment")[0].as_py(), rows.column("place").to_numpy()
    return pa.table({"segment": [segment], "count": [len(places)], "packed": pa.array([pack(places)], pa.binary())})


def count_columns_on_spark(spark: SparkSession, now: Scan, then: Scan, sides: ColumnSides) -> ColumnTotals:
    """Count the values of hashed rows: rows of one key meet in one task, and the driver gets the totals."""

    def totals() -> DataFrame:
        frames = [
            _folded(spark, scan, fold, ", ".join(f"{column} bigint" for column in fold.names))
            for scan, fold in ((now, sides.now), (then, sides.then))
        ]
        return spark.sql(sides.sql("{now}", "{then}"), now=frames[0], then=frames[1])

    [row] = _collected(spark, now.reader, totals)
    return ColumnTotals.of(row, len(sides.now.values))
