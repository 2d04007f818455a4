"""The rows of Iceberg data files as Arrow batches, each row known by its file's number and its position there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    ArrowScan,
    _get_column_projection_values,
    _read_all_delete_files,
    _to_requested_schema,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import FileScanTask, Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import ListType, MapType

from instep.destinations.iceberg.commit.shard_table import planned
from instep.destinations.iceberg.metadata.partition import place_of
from instep.destinations.rows import brief
from instep.errors import DestinationError

ALL = AlwaysTrue()
Positions = npt.NDArray[np.int64]
_BATCH_ROWS = 1 << 17


@dataclass(frozen=True)
class RowReader:
    """Data files of one table (or with its schema)."""

    table: Table
    files: Sequence[DataFile]
    deleted: Mapping[str, Positions] = field(default_factory=dict)
    """Per file path the positions that are deleted, sorted."""
    deletes: Mapping[str, Sequence[DataFile]] = field(default_factory=dict)
    """The delete files that say so, by the path of the data file."""
    within: tuple[int | None, int | None] = (None, None)
    """The rows of `numbered` are those whose first column is from the one on and below the other; None is without a
    bound, and NULL is below all."""
    errors: list[Exception] = field(default_factory=list, compare=False)
    """Errors of `numbered`; an engine that reads its batches passes on their text alone."""

    @property
    def rows(self) -> int:
        """Return how many rows there are, without those that are deleted."""
        return sum(file.record_count for file in self.files) - sum(map(len, self.deleted.values()))


def tasks_within(table: Table, within: BooleanExpression) -> list[FileScanTask]:
    """Return the files that may have rows `within` by their metrics. Partitions are not asked: pyiceberg's ways from
    values to them are as many as there are transforms."""
    may_have = _InclusiveMetricsEvaluator(table.schema(), within).eval
    return [t for t in planned(table) if may_have(t.file)]


def current_rows(table: Table, within: BooleanExpression = ALL) -> RowReader | None:
    """Return the table's rows as its current snapshot has them, of the files that may have some `within`; None if one
    has deletes that are not by position."""
    tasks = tasks_within(table, within)
    deletes = {t.file.file_path: tuple(t.delete_files) for t in tasks}
    if any(d.content != DataFileContent.POSITION_DELETES for files in deletes.values() for d in files):
        return None
    return RowReader(table, [t.file for t in tasks], _deleted_positions(table.io, tasks), deletes)


def _deleted_positions(io: FileIO, tasks: Sequence[FileScanTask]) -> dict[str, Positions]:
    """Return, per data file's path, the positions that its delete files name, sorted."""
    return {
        path: np.unique(np.concatenate([part.to_numpy() for part in parts]).astype(np.int64))
        for path, parts in _read_all_delete_files(io, tasks).items()
    }


def staged_rows(table: Table, files: Sequence[DataFile]) -> RowReader:
    """Return rows of files that have the table's schema, or a part of it, and that the table does not list."""
    return RowReader(table, files)


def numbered(
    rows: RowReader, columns: Sequence[str], ordered: str | None = None, files: Iterable[int] | None = None
) -> pa.RecordBatchReader:
    """Return the columns as c0, c1, ... (names of columns may differ by case only), f (file number), p (position). They
    are compared, not read: a long value is its digest, but for a column that is `ordered` by. `files`: the numbers of
    those that are read, in this order; None for all."""
    projected = schema_to_pyarrow(rows.table.schema(), include_field_ids=False)
    kinds = [projected.field(c).type for c in columns]
    names = [*(f"c{i}" for i in range(len(columns))), "f", "p"]
    schema = pa.schema(list(zip(names, [*kinds, pa.int32(), pa.int64()], strict=True)))

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for number in range(len(rows.files)) if files is None else files:
                for positions, batch in _batches(rows, number, columns):
                    keep = _live_mask(rows, number, positions)
                    whole = [(c, _as(batch.column(c), k)) for c, k in zip(columns, kinds, strict=True)]
                    values = [v if c == ordered else brief(v) for c, v in whole]
                    place = [pa.repeat(pa.scalar(number, pa.int32()), len(positions)), pa.array(positions)]
                    batch = pa.record_batch([*values, *place], schema=schema)
                    keep &= _within_mask(batch.column(0), *rows.within)
                    if keep.any():
                        yield batch if keep.all() else batch.filter(pa.array(keep))
        except Exception as error:
            rows.errors.append(error)
            raise

    return pa.RecordBatchReader.from_batches(schema, batches())


def rows_at(rows: RowReader, places: Positions, target: pa.Schema) -> pa.Table:
    """Return the rows at `places`, lines of (file number, position) in ascending order, as `target` has them."""
    parts = []
    for number in np.unique(places[:, 0]):
        chosen = places[places[:, 0] == number, 1]
        for positions, batch in _batches(rows, int(number), target.names):
            inside = chosen[np.searchsorted(chosen, positions[0]) : np.searchsorted(chosen, positions[-1], "right")]
            if len(inside):
                part = batch.take(pa.array(inside - positions[0]))
                columns = [_as(part.column(f.name), f.type) for f in target]
                parts.append(pa.record_batch(columns, schema=target))
    return pa.Table.from_batches(parts, schema=target)


def _batches(rows: RowReader, number: int, columns: Sequence[str]) -> Iterator[tuple[Positions, pa.RecordBatch]]:
    """Yield one file's batches in order, deleted rows included, with the position of each row."""
    metadata, file, start = rows.table.metadata, rows.files[number], 0
    projection = rows.table.schema().select(*columns)
    if rows.within != (None, None):
        yield from _decoded_within(rows, file, columns[0], projection)
        return
    if file.file_format == FileFormat.PARQUET and file.file_path.startswith(("file:", "/")):
        batches = _decoded(metadata, rows.table.io, file, projection)
    else:  # across a network it is worth the memory to read ahead
        scan = ArrowScan(metadata, rows.table.io, projection, AlwaysTrue())
        # `to_record_batches` holds all of a file; its deletes are looked at by `_live_mask`
        batches = scan._record_batches_from_scan_tasks_and_deletes([FileScanTask(file)], {})
    for batch in batches:
        if batch.num_rows:
            yield np.arange(start, start + batch.num_rows), batch
            start += batch.num_rows


def _decoded_within(
    rows: RowReader, file: DataFile, column: str, projection: Schema
) -> Iterator[tuple[Positions, pa.RecordBatch]]:
    """Yield the batches of the row groups that may have rows `within`."""
    number = rows.table.schema().find_field(column).field_id
    start = 0
    for group, span in enumerate(group_spans(rows.table.io, file.file_path, number)):
        at = start
        start += span.rows
        if span.meets(*rows.within):
            for batch in _decoded(rows.table.metadata, rows.table.io, file, projection, group):
                yield np.arange(at, at + batch.num_rows), batch
                at += batch.num_rows


@dataclass(frozen=True)
class KeySpan:
    """The least and greatest whole number of a column in some rows, None where it is not known; NULL is below all."""

    low: int | None
    high: int | None
    rows: int

    def meets(self, low: int | None, high: int | None) -> bool:
        """Return whether there may be numbers from `low` on and below `high`."""
        return (low is None or self.high is None or self.high >= low) and (
            high is None or self.low is None or self.low < high
        )


def group_spans(io: FileIO, path: str, column: int) -> list[KeySpan]:
    """Return what the footer of a Parquet file tells of a column, by its field id, in each row group."""
    with io.new_input(path).open() as stream, pq.ParquetFile(stream) as parquet:
        ids = [int((field.metadata or {}).get(b"PARQUET:field_id", -1)) for field in parquet.schema_arrow]
        names = [parquet.metadata.schema.column(n).path for n in range(parquet.metadata.num_columns)]
        name = parquet.schema_arrow.names[ids.index(column)] if column in ids else ""
        place = names.index(name) if name in names else -1
        return [_group_span(parquet.metadata.row_group(n), place) for n in range(parquet.metadata.num_row_groups)]


def _group_span(group: pq.RowGroupMetaData, column: int) -> KeySpan:
    statistics = group.column(column).statistics if column >= 0 else None
    if statistics is None or not statistics.has_min_max or not isinstance(statistics.min, int):
        return KeySpan(None, None, group.num_rows)
    exact = statistics.has_null_count and statistics.null_count == 0
    return KeySpan(statistics.min if exact else None, statistics.max, group.num_rows)


def _decoded(
    metadata: TableMetadata, io: FileIO, file: DataFile, projection: Schema, group: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a Parquet file, or of a row group, decoded as they are read. A scan of pyiceberg decodes files
    ahead, and new memory costs a process as much as decoding."""
    version = metadata.format_version
    to_us = version <= 2  # as the scan: these have no nanoseconds
    fields = {f for f in projection.field_ids if not isinstance(projection.find_type(f), (ListType, MapType))}
    with io.new_input(file.file_path).open() as stream, pq.ParquetFile(stream) as parquet:
        names, kinds = metadata.name_mapping(), parquet.schema_arrow
        stored = pyarrow_to_schema(kinds, names, downcast_ns_timestamp_to_us=to_us, format_version=version)
        spec = metadata.specs().get(file.spec_id)
        missing = _get_column_projection_values(file, projection, metadata.schema(), spec, stored.field_ids)
        read = prune_columns(stored, fields, select_full_types=False)
        groups = None if group is None else [group]
        for batch in parquet.iter_batches(_BATCH_ROWS, groups, columns=[c.name for c in read.columns]):
            yield _to_requested_schema(
                projection,
                read,
                batch,
                downcast_ns_timestamp_to_us=to_us,
                projected_missing_fields=missing,
                allow_timestamp_tz_mismatch=True,
            )


def _live_mask(rows: RowReader, number: int, positions: Positions) -> npt.NDArray[np.bool_]:
    gone = rows.deleted.get(rows.files[number].file_path)
    keep = np.ones(len(positions), dtype=np.bool_)
    if gone is not None:
        inside = gone[np.searchsorted(gone, positions[0]) : np.searchsorted(gone, positions[-1], "right")]
        keep[inside - positions[0]] = False
    return keep


def _within_mask(values: pa.Array, low: int | None, high: int | None) -> npt.NDArray[np.bool_]:
    inside = np.ones(len(values), dtype=np.bool_)
    for bound, compare, null in ((low, pc.greater_equal, False), (high, pc.less, True)):
        if bound is not None:
            inside &= np.asarray(compare(values, pa.scalar(bound, pa.int64())).fill_null(null))
    return inside


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


FilePlace = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True)
class ExistingFile:
    """A data file: `deletes` are the paths of its delete files, `values` the places of the staged files (in
    `FillTask.values`) that may hold its keys, `place` the spec and the partition that it is under."""

    number: int
    path: str
    rows: int
    bytes: int
    deletes: tuple[str, ...] = ()
    values: tuple[int, ...] = ()
    place: FilePlace = (0, ())


def old_file(number: int, task: FileScanTask, values: tuple[int, ...] = ()) -> ExistingFile:
    """Return a data file as a scan has planned it."""
    file, deletes = task.file, tuple(sorted(d.file_path for d in task.delete_files))
    return ExistingFile(
        number, file.file_path, file.record_count, file.file_size_in_bytes, deletes, values, place_of(file)
    )


def existing_rows(table: Table, files: Sequence[ExistingFile], within: tuple[int | None, int | None]) -> RowReader:
    """Return the rows of files, without those that their delete files name, whose first column is `within`."""
    tasks = [
        FileScanTask(
            file_at(old.path, old.place, rows=old.rows),
            {file_at(path, old.place, DataFileContent.POSITION_DELETES) for path in old.deletes},
        )
        for old in files
    ]
    return RowReader(table, [t.file for t in tasks], _deleted_positions(table.io, tasks), within=within)


def file_at(path: str, place: FilePlace, content: DataFileContent = DataFileContent.DATA, rows: int = 0) -> DataFile:
    """Return a data file, or delete file, as far as reading it needs it."""
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*place[1]),
        record_count=rows,
        file_size_in_bytes=0,
    )
    file.spec_id = place[0]
    return file


def live_rows(table: TableMetadata, io: FileIO, old: ExistingFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield a data file's rows in order, without those that its delete files name, as the table has the columns."""
    scan = ArrowScan(table, io, table.schema().select(*columns), AlwaysTrue())
    deletes = {file_at(d, old.place, DataFileContent.POSITION_DELETES) for d in old.deletes}
    task = FileScanTask(file_at(old.path, old.place), deletes)
    gone = _read_all_delete_files(io, [task])
    for batch in scan._record_batches_from_scan_tasks_and_deletes([task], gone):
        if batch.num_rows:
            yield batch


def check_count(name: str, rows: int, tasks: Sequence[FileScanTask]) -> None:
    """Raise DestinationError before rows could be lost: so many were written in place of those of the files."""
    before = sum(t.file.record_count for t in tasks)
    gone = sum(d.record_count for t in tasks for d in t.delete_files)
    if not before - gone <= rows <= before:
        raise DestinationError(
            f"table {name}: {rows:,} rows were written in place of {before:,} with {gone:,} deletes",
            hint="nothing was committed; check the files with `instep verify`",
        )


def light(metadata: TableMetadata) -> TableMetadata:
    """Return the table's metadata as far as reading and writing its files needs it."""
    names = {k: v for k, v in metadata.properties.items() if k == TableProperties.DEFAULT_NAME_MAPPING}
    nothing: dict[str, Any] = {"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "properties": names}
    return metadata.model_copy(update={**nothing, "current_snapshot_id": None})
