"""One task that takes values out of the objects of some data files: it writes those again in which a row gets one.

A file is never held whole, and each of its objects is parsed once: the objects and the columns that they are for are
read up to the first rows that get a value, then all columns, batch by batch, into the new file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from instep.destinations.iceberg.backfill.fill_task import Rewritten
from instep.destinations.iceberg.commit.row_reader import ExistingFile, live_rows
from instep.destinations.overflow import ExtractedValues, FileExtraction, OverflowColumn, extract_values, first_valid
from instep.stage.files.partitioned import writer_for
from instep.stage.files.pyiceberg_code import load_file_io
from instep.stage.spec import StagedFile, StageSpec
from instep.stage.task import ChunkProgress, Report


@dataclass(frozen=True)
class PromoteTask:
    """The data files of one task, whose rows get values of these columns out of the objects in `extra`."""

    table: TableMetadata
    """Metadata without snapshots, which are not needed and may be many."""
    spec: StageSpec
    """Specification of the files to write."""
    columns: Mapping[str, OverflowColumn]
    extra: str
    files: tuple[ExistingFile, ...]
    io: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class PromotedPart:
    """The files that changed, and how many values do not fit their column."""

    rewritten: tuple[Rewritten, ...]
    invalid_values: int


def promote_part(part: PromoteTask, attempt: int, report: Report | None) -> PromotedPart:
    """Return the files of the part that change; the others are not written."""
    io, rewritten, written = load_file_io(dict(part.io), part.spec.location), list[Rewritten](), 0
    invalid_values = 0
    for old in part.files:
        taking = FileExtraction()
        names = (part.extra, *part.columns)
        if taking.changes(
            _extract(part, {name: b.column(name) for name in names}) for b in live_rows(part.table, io, old, names)
        ):
            files = _write(part, io, old, attempt, taking)
            rewritten.append(Rewritten(old.path, files, taking.rows))
            written += sum(f.rows for f in files)
            if report is not None:
                size = sum(f.bytes for file in rewritten for f in file.files)
                report(ChunkProgress(part.spec.table, written, size, 1))
        invalid_values += taking.invalid_values
    return PromotedPart(tuple(rewritten), invalid_values)


def _extract(part: PromoteTask, columns: Mapping[str, pa.Array]) -> ExtractedValues:
    """Return what becomes of rows, of these columns by name."""
    fields = [part.spec.schema.field(name) for name in part.columns]
    lacks = [columns[name].is_null() for name in part.columns]
    return extract_values(columns[part.extra], lacks, list(part.columns.values()), fields)


def _write(
    part: PromoteTask, io: FileIO, old: ExistingFile, attempt: int, taking: FileExtraction
) -> tuple[StagedFile, ...]:
    schema, start = part.spec.schema, 0
    writer = writer_for(part.spec, old.number, attempt)
    try:
        for batch in live_rows(part.table, io, old, schema.names):
            columns = {name: batch.column(name) for name in schema.names}
            if (done := taking.extract(start, len(batch), partial(_extract, part, dict(columns)))) is not None:
                columns[part.extra] = pc.if_else(
                    done.gets, _as(done.left, columns[part.extra].type), columns[part.extra]
                )
                for name, values in zip(part.columns, done.values, strict=True):
                    columns[name] = first_valid(columns[name], _as(values, columns[name].type))
            start += len(batch)
            writer.write(pa.record_batch([_as(columns[f.name], f.type) for f in schema], schema=schema))
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)
