"""One task of a compaction: writes the live rows of some data files, in their order, as one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata

from instep.destinations.iceberg.commit.row_reader import ExistingFile, live_rows
from instep.stage.files.partitioned import writer_for
from instep.stage.files.pyiceberg_code import load_file_io
from instep.stage.spec import StagedFile, StageSpec
from instep.stage.task import ChunkProgress, Report


@dataclass(frozen=True)
class FileGroup:
    """One task's data files."""

    number: int
    table: TableMetadata
    """Metadata without snapshots, with a schema of the columns in `spec.schema`."""
    spec: StageSpec
    files: tuple[ExistingFile, ...]
    order: tuple[tuple[str, str], ...] = ()
    """Columns and their directions if the table is sorted: then the rows are held and sorted."""
    io: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Packed:
    """The files in place of those at `paths`."""

    paths: tuple[str, ...]
    files: tuple[StagedFile, ...]

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)


def pack(part: FileGroup, attempt: int, report: Report | None) -> Packed:
    """Write the rows of the bin; raises StageError if they are not what the table needs."""
    writer = writer_for(part.spec, part.number, attempt)
    try:
        for batch in _sorted(part) if part.order else _rows(part):
            writer.write(batch)
        done = Packed(tuple(old.path for old in part.files), writer.close())
    except BaseException:
        writer.abort()
        raise
    if report is not None:
        report(ChunkProgress(part.spec.table, done.rows, sum(f.bytes for f in done.files), 1))
    return done


def _rows(part: FileGroup) -> Iterator[pa.RecordBatch]:
    schema, io = part.spec.schema, load_file_io(dict(part.io), part.spec.location)
    for old in part.files:
        for batch in live_rows(part.table, io, old, schema.names):
            columns = [_as(batch.column(f.name), f.type) for f in schema]
            yield pa.record_batch(columns, schema=schema)


def _sorted(part: FileGroup) -> Iterator[pa.RecordBatch]:
    rows = pa.Table.from_batches(_rows(part), part.spec.schema)
    for batch in rows.sort_by(list(part.order)).to_batches():
        yield pa.record_batch(batch.columns, schema=part.spec.schema)


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)
