"""The rows of a table: the first ones, without opening more files than hold them, or all, by tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    Reference,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files, schema_to_pyarrow
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata

from instep.destinations.base import CastSample, InvalidValueCount, Ref
from instep.destinations.filters import ColumnFilter
from instep.destinations.iceberg.commit.row_reader import ALL, ExistingFile, light, live_rows, old_file, tasks_within
from instep.destinations.iceberg.commit.shard_table import planned
from instep.destinations.iceberg.evolve.undo import arrow_type
from instep.destinations.iceberg.metadata.catalog import LakeFacet
from instep.destinations.iceberg.metadata.records import current_fields, read_table
from instep.destinations.iceberg.metadata.schema import data_type
from instep.destinations.iceberg.metadata.shards import totals
from instep.destinations.iceberg.write.load import load_ours, load_readable
from instep.destinations.parts import is_large
from instep.destinations.rows import first_rows as first_rows_of
from instep.destinations.rows import invalid_values_in, tried
from instep.schema.catalog.types import DataType
from instep.stage.files.pyiceberg_code import load_file_io
from instep.stage.fold import Scan
from instep.stage.spec import Chunk, StagedFile


def first_rows(table: IcebergTable, columns: tuple[str, ...], rows: int) -> pa.Table:
    """Read these columns of as many files as `rows` takes."""
    scan = table.scan(selected_fields=columns, limit=rows)
    tasks, count = [], 0
    for task in scan.plan_files():
        tasks.append(task)
        count += task.file.record_count
        if count >= rows:
            break
    reader = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter, scan.case_sensitive, rows)
    return reader.to_table(tasks)


def rows_of(
    table: IcebergTable, columns: tuple[str, ...] = ("*",), where: BooleanExpression = ALL
) -> pa.RecordBatchReader:
    """Return the rows that pass a filter, batch by batch, whatever the files hold. Partitions are not asked: the files'
    metrics say more."""
    projection = table.scan(selected_fields=columns).projection()
    reader = ArrowScan(table.metadata, table.io, projection, where)
    schema = schema_to_pyarrow(projection, include_field_ids=False)

    def batches() -> Iterator[pa.RecordBatch]:
        for task in tasks_within(table, where):
            gone = _read_all_delete_files(table.io, [task])
            # `to_record_batches` holds all of a file, and begins with the next ones
            for batch in reader._record_batches_from_scan_tasks_and_deletes([task], gone):
                arrays = [c if c.type == f.type else c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


_COMPARISONS: Mapping[str, Callable[..., BooleanExpression]] = {
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}


def expression(filters: Sequence[ColumnFilter]) -> BooleanExpression:
    """Return filters as Iceberg has them."""
    conjunction: BooleanExpression = ALL
    for condition in filters:
        conjunction = And(conjunction, _expression(condition))
    return conjunction


def _expression(column_filter: ColumnFilter) -> BooleanExpression:
    term = Reference(column_filter.column)
    match column_filter.operator:
        case "null":
            return IsNull(term=term)
        case "not null":
            return NotNull(term=term)
        case "=" | "in":
            return In(term=term, values={literal(v) for v in column_filter.values})
        case operator:
            return _COMPARISONS[operator](term, literal(column_filter.values[0]))


class IcebergSamples(LakeFacet):
    """Some of the rows."""

    def sample_cast(self, ref: Ref, column: str, kind: DataType, key: Sequence[str], limit: int) -> CastSample:
        """Try a cast on the first rows."""
        table, metadata = load_ours(self.lake, ref)
        known_column = read_table(ref, metadata).by_name.get(column)
        if known_column is None or table.metadata.current_snapshot() is None:
            return CastSample()
        sample = first_rows(table, tuple(dict.fromkeys([column, *key])), limit)
        return tried(sample, column, key, known_column.type, kind, arrow_type(kind, column))

    def count_invalid_values(self, ref: Ref, column: str, kind: DataType) -> InvalidValueCount:
        """Return how many values of a column do not fit a type, and one of them; reads that column only."""
        table = self.lake.load(ref)
        if table is None or table.metadata.current_snapshot() is None:
            return InvalidValueCount()
        metadata = json.loads(table.metadata.model_dump_json())
        field = next(f for f in current_fields(metadata) if f.name == column)
        parts = (batch.column(0) for batch in table.scan(selected_fields=(column,)).to_arrow_batch_reader())
        return invalid_values_in(parts, data_type(field.type), kind, arrow_type(kind, column))

    def first_rows(self, ref: Ref, limit: int) -> pa.Table:
        """Return at most so many rows, all columns of them."""
        reader = rows_of(load_readable(self.lake, ref))
        return first_rows_of(reader, limit, reader.schema)

    def read(self, ref: Ref, names: Sequence[str] = (), filters: Sequence[ColumnFilter] = ()) -> pa.RecordBatchReader:
        """Return the rows as they are now, of the files and row groups that may have some that pass the filters."""
        return rows_of(load_readable(self.lake, ref), tuple(names) or ("*",), expression(filters))

    def is_large(self, ref: Ref, files: Sequence[StagedFile] = ()) -> bool:
        """Return whether the table and the files are for tasks."""
        counted = totals(load_ours(self.lake, ref)[1])
        rows, size = counted.get("records", 0), counted.get("files-size", 0)
        limit = self.lake.config.upsert_rows
        return is_large(rows + sum(f.rows for f in files), size + sum(f.bytes for f in files), limit)

    def scan(self, ref: Ref, names: Sequence[str]) -> Scan | None:
        """Return columns of the rows for tasks to read; None where rows are deleted otherwise than by position."""
        table = load_readable(self.lake, ref)
        tasks = planned(table)
        if any(d.content != DataFileContent.POSITION_DELETES for t in tasks for d in t.delete_files):
            return None
        reader = IcebergReader(light(table.metadata), table.location(), self.lake.io(), tuple(names))
        key = ".".join(ref)
        return Scan(
            reader,
            [
                FileChunk(key, n, "", t.file.record_count, t.file.file_size_in_bytes, file=old_file(n, t))
                for n, t in enumerate(tasks)
            ],
        )


@dataclass(frozen=True)
class FileChunk(Chunk):
    """One data file as it stands, without the rows that its delete files name."""

    file: ExistingFile | None = None


@dataclass(frozen=True)
class IcebergReader:
    """Reads data files in a task."""

    table: TableMetadata
    """Metadata without snapshots, which are not needed and may be many."""
    location: str
    io: Mapping[str, str] = field(repr=False)
    names: tuple[str, ...]

    @contextmanager
    def open(self) -> Iterator[IcebergFiles]:
        """Open the table's storage."""
        yield IcebergFiles(self, load_file_io(dict(self.io), self.location))


@dataclass(frozen=True)
class IcebergFiles:
    """The data files of a table, where they lie."""

    reader: IcebergReader
    io: FileIO

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file with the types that the table has now."""
        assert isinstance(chunk, FileChunk)
        assert chunk.file is not None
        reader = self.reader
        schema = schema_to_pyarrow(reader.table.schema().select(*reader.names), include_field_ids=False)
        fields = [schema.field(name) for name in reader.names]
        for batch in live_rows(reader.table, self.io, chunk.file, reader.names):
            columns = [batch.column(f.name) for f in fields]
            cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, fields, strict=True)]
            yield pa.RecordBatch.from_arrays(cast, names=list(reader.names))
