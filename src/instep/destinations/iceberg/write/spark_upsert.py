"""The upsert of a table that does not fit: Spark finds which rows differ, tasks write those and nothing else.

What is written, and how it lands, is what write/upsert.py makes of a smaller table: new rows in new files, and position
deletes for the rows whose place they take.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import _read_all_delete_files
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata

from instep.destinations.base import Commit, LoadOutcome
from instep.destinations.iceberg.commit.new_files import NewFiles
from instep.destinations.iceberg.commit.position_deletes import (
    Deletes,
    PositionFile,
    delete_file,
    is_of_one_file,
    write_positions,
)
from instep.destinations.iceberg.commit.row_reader import ExistingFile, RowReader, file_at, light, old_file
from instep.destinations.iceberg.commit.shard_table import ShardTable, own_data, planned
from instep.destinations.iceberg.metadata.files import arrow_schema, data_files
from instep.destinations.iceberg.metadata.partition import partitioning, place_of
from instep.destinations.iceberg.write.key_ranges import find_in_range, range_work
from instep.destinations.iceberg.write.upsert import Delta, new_rows, old_values
from instep.errors import Conflict, StageError
from instep.spark.executors import slots
from instep.spark.merge import BEYOND, Edits, MergeFiles, MergePlan, MergeSettings, find_edits, find_in_parts
from instep.stage.files.partitioned import writer_for
from instep.stage.files.pyiceberg_code import load_file_io
from instep.stage.spec import StagedFile, StageSpec, SystemColumns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 250_000
"""New rows of one task, about; each task writes a file of them, or one a partition."""
READ_BYTES = 1 << 30
"""About the most of the files that one task reads for that."""
_NONE = np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class StagedMerge:
    """A merge that is staged for `table`: the files, oldest first, and how many `rows`, requested keys included.
    `before`: how many the table has, if that is known. `io` may hold credentials."""

    table: IcebergTable
    files: Sequence[DataFile]
    rows: int
    before: int | None
    io: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class SparkUpsert:
    """Upsert of `plan` on the current snapshot of the table, as Spark has found it."""

    spark: SparkSession = field(repr=False)
    staged: StagedMerge
    plan: MergePlan
    tasks: Sequence[FileScanTask]
    edits: Edits

    @property
    def table(self) -> IcebergTable:
        return self.staged.table

    @property
    def empty(self) -> bool:
        return not self._count("inserted", "updated", "marked", "removed")

    def _count(self, *kinds: str) -> int:
        return sum(self.edits.counts.get(kind, 0) for kind in kinds)

    @property
    def outcome(self) -> LoadOutcome:
        gone, inserted = self._count("marked", "removed"), self._count("inserted")
        absent = max(self.edits.absent - inserted, 0)
        return LoadOutcome(inserted, self._count("updated"), gone, absent, self._count("returned"))

    @property
    def rows_after(self) -> int | None:
        before = self.staged.before
        return None if before is None else before + self._count("inserted") - self._count("removed")

    @contextmanager
    def written(self, commit: Commit) -> Iterator[tuple[list[DataFile], Deletes]]:
        """Yield the files of the edits, in their own folder; they are removed if the commit is refused."""
        folder = f"{own_data(self.table)}/{commit.run}-merge-{commit.fence}-{uuid.uuid4().hex[:8]}"
        spec = StageSpec(
            table=".".join(self.table.name()),
            columns=(),
            system=SystemColumns(),
            schema=arrow_schema(self.table.schema()),
            location=folder,
            quarantine="",
            run=commit.run,
            synced=0,
            io=self.staged.io,
            partition=partitioning(self.table.metadata),
        )
        new_files = NewFiles(spec.io)
        with new_files.removed_unless_landed(folder):
            staged, positions = self._write(spec)
            files = {t.file.file_path: t for t in self.tasks}
            deletes = Deletes(
                [delete_file(files[of].file, file) for of, file in positions.items()],
                [d for of in positions for d in files[of].delete_files if is_of_one_file(d)],
            )
            data = data_files(staged, self.table.metadata)
            with new_files.landing([*(f.path for f in staged), *(f.path for f in positions.values())]):
                yield data, deletes

    def _write(self, spec: StageSpec) -> tuple[list[StagedFile], dict[str, PositionFile]]:
        metadata = light(self.table.metadata)
        staged = tuple(ExistingFile(n, f.file_path, 0, 0, place=place_of(f)) for n, f in enumerate(self.staged.files))
        files = tuple(old_file(n, task) for n, task in enumerate(self.tasks))
        work = MergeWork(self.plan, metadata, spec, staged, files)
        came, gone = ("inserted", "updated", "marked"), ("updated", "marked", "removed")
        written: list[list[StagedFile]] = []
        positions: list[list[tuple[str, PositionFile]]] = []
        if rows := self._count(*came):
            written = self.edits.run(write_rows, work, came, "coalesce(sf, -1 - tf)", self._writers(rows))
        if self._count(*gone):
            tasks = min(2 * slots(self.spark), len(files))
            positions = self.edits.run(write_gone, work, gone, "tf", tasks)
        return [f for part_files in written for f in part_files], dict(p for position in positions for p in position)

    def _writers(self, rows: int) -> int:
        """Return how many tasks write so many rows: few changes of many files are read by as many as there is room
        for."""
        read = sum(f.file_size_in_bytes for f in self.staged.files)
        if self._count("marked") or {*self.plan.inserted} - {*self.plan.key, *self.plan.values, *self.plan.stamps}:
            read += sum(t.file.file_size_in_bytes for t in self.tasks)
        return max(math.ceil(rows / ROWS), min(math.ceil(read / READ_BYTES), 2 * slots(self.spark)))


@contextmanager
def found_by_spark(
    spark: SparkSession, staged: StagedMerge, plan: MergePlan, settings: MergeSettings
) -> Iterator[SparkUpsert]:
    """Yield the upsert; StageError for a table that has a key twice, Conflict if the table moved while it was read."""
    table, tasks = staged.table, planned(staged.table)
    with _edits(spark, staged, plan, settings, tasks) as edits:
        if twins := edits.counts.get("twin", 0):
            raise StageError(
                f"table {'.'.join(table.name())} has keys in more than one row: {twins} rows have one that was staged; "
                "nothing was published",
                hint="the table may hold duplicate keys already: `instep backfill` reloads it",
            )
        _check_unmoved(table, edits)
        yield SparkUpsert(spark, staged, plan, tasks, edits)


@contextmanager
def _edits(
    spark: SparkSession, staged: StagedMerge, plan: MergePlan, settings: MergeSettings, tasks: Sequence[FileScanTask]
) -> Iterator[Edits]:
    """Yield the edits that tasks find range by range, or else those of a join."""
    with ExitStack() as stack:
        if work := range_work(staged.table, plan, staged.files, tasks, staged.io, 2 * slots(spark)):
            edits = stack.enter_context(find_in_parts(spark, find_in_range, work, len(work.ranges)))
            if BEYOND not in edits.counts:
                yield edits
                return
        files = MergeFiles([t.file.file_path for t in tasks], [f.file_path for f in staged.files], staged.rows)
        yield stack.enter_context(find_edits(spark, plan, settings, files))


def _check_unmoved(table: IcebergTable, edits: Edits) -> None:
    """Raise Conflict if Spark may have read another snapshot than we did: it reads the newest by itself. What other
    shards commit meanwhile touches no file of this one, which is checked when it lands."""
    moved = "moved" in edits.counts
    if not isinstance(table, ShardTable):
        now, then = table.catalog.load_table(table.name()).metadata, table.metadata
        # snapshots before the current one may have expired meanwhile; a way there and back has its own time
        moved = moved or now.current_snapshot_id != then.current_snapshot_id
        moved = moved or now.snapshot_log[-1:] != then.snapshot_log[-1:]
    if moved:
        raise Conflict(f"table {'.'.join(table.name())} moved under this run", hint="run the sync again")


@dataclass(frozen=True)
class MergeWork:
    """The settings of the tasks of a merge: `table` has no snapshots, `spec` says how files are written."""

    plan: MergePlan
    table: TableMetadata
    spec: StageSpec = field(repr=False)
    staged: tuple[ExistingFile, ...]
    files: tuple[ExistingFile, ...]

    def reader(self, files: Sequence[ExistingFile]) -> RowReader:
        io = load_file_io(dict(self.spec.io), self.spec.location)
        table = IcebergTable(("merge",), self.table, "", io, None)  # type: ignore[arg-type]
        return RowReader(table, [file_at(old.path, old.place) for old in files])


def write_rows(work: MergeWork, edits: pa.Table, number: int, attempt: int) -> list[StagedFile]:
    """Write the rows that come."""
    staged, table = work.reader(work.staged), work.reader(work.files)
    writer = writer_for(work.spec, number, attempt)
    try:
        updated = edits.filter(pc.equal(edits.column("what"), "updated"))
        old = old_values(work.plan, table, _columns(updated, "tf", "tp"))
        for delta in deltas(edits):
            for batch in new_rows(work.plan, staged, table, delta, old).to_batches():
                writer.write(batch)
        return list(writer.close())
    except BaseException:
        writer.abort()
        raise


def write_gone(work: MergeWork, edits: pa.Table, number: int, attempt: int) -> list[tuple[str, PositionFile]]:
    """Write the positions of the rows that go, with those of the same data file that are gone already."""
    places = _columns(edits, "tf", "tp")
    io = load_file_io(dict(work.spec.io), work.spec.location)
    written = []
    for file in np.unique(places[:, 0]):
        old = work.files[file]
        gone = np.union1d(places[places[:, 0] == file, 1], _deleted_positions(io, old))
        path = f"{work.spec.location}/{file}-{number}-{attempt}-deletes.parquet"
        written.append((old.path, write_positions(io, old.path, gone, path)))
    return written


def _deleted_positions(io: Any, old: ExistingFile) -> Any:
    deletes = {file_at(path, old.place, DataFileContent.POSITION_DELETES) for path in old.deletes}
    parts = _read_all_delete_files(io, [FileScanTask(file_at(old.path, old.place), deletes)])
    return np.concatenate([np.empty(0, np.int64), *(p.to_numpy() for p in parts.get(old.path, ()))]).astype(np.int64)


def deltas(edits: pa.Table) -> Iterator[Delta]:
    """Yield the edits of one staged file at a time, then those of rows that are marked, by file of the table."""
    kinds = np.asarray(edits.column("what").to_pylist())
    by = np.where(kinds == "marked", -1 - _columns(edits, "tf")[:, 0], _columns(edits, "sf")[:, 0])
    for file in np.unique(by):
        chosen: Mapping[str, pa.Table] = {
            kind: edits.filter(pa.array((by == file) & (kinds == kind))) for kind in ("inserted", "updated", "marked")
        }
        yield Delta(
            inserted=_sorted(_columns(chosen["inserted"], "sf", "sp")),
            updated=_sorted(_columns(chosen["updated"], "sf", "sp", "tf", "tp")),
            marked=_sorted(_columns(chosen["marked"], "tf", "tp")),
            removed=_NONE,
            rows=0,
        )


def _columns(edits: pa.Table, *names: str) -> Any:
    columns = [edits.column(n).combine_chunks().cast(pa.int64()).fill_null(-1).to_numpy() for n in names]
    return np.stack(columns, axis=1)


def _sorted(places: Any) -> Any:
    return places[np.lexsort(places.T[::-1])]
