"""One task that takes values out of the objects of some data files: it writes those again in which a row gets one.

A file is read twice and never held whole: first the objects and the columns that they are for, then all columns, batch
by batch, into the new file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from instep.destinations.iceberg.backfill.fill_task import Rewritten
from instep.destinations.iceberg.commit.row_reader import Old, live_rows
from instep.destinations.overflow import OverflowColumn, TakenCount, TakenOut, first_valid, take_out
from instep.stage.files.partitioned import writer_for
from instep.stage.files.pyiceberg_code import load_file_io
from instep.stage.spec import StagedFile, StageSpec
from instep.stage.task import ChunkProgress, Report


@dataclass(frozen=True)
class PromoteTask:
    """The data files of one task, whose rows get values of these columns out of the objects in `extra`."""

    table: TableMetadata
    """Has no snapshots: they are not needed, and may be many."""
    spec: StageSpec
    """Says how files are written."""
    columns: Mapping[str, OverflowColumn]
    extra: str
    files: tuple[Old, ...]
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
        count = TakenCount()
        if count.changes(done for _, done in _taken(part, io, old, (part.extra, *part.columns))):
            files = _write(part, io, old, attempt, count)
            rewritten.append(Rewritten(old.path, files, count.rows))
            written += sum(f.rows for f in files)
            if report is not None:
                size = sum(f.bytes for one in rewritten for f in one.files)
                report(ChunkProgress(part.spec.table, written, size, 1))
        invalid_values += count.invalid_values
    return PromotedPart(tuple(rewritten), invalid_values)


def _taken(
    part: PromoteTask, io: FileIO, old: Old, names: tuple[str, ...]
) -> Iterator[tuple[dict[str, pa.Array], TakenOut]]:
    """Yield a file's rows, of these columns by name, with what becomes of them."""
    fields = [part.spec.schema.field(name) for name in part.columns]
    for batch in live_rows(part.table, io, old, names):
        columns = {name: batch.column(name) for name in names}
        lacks = [columns[name].is_null() for name in part.columns]
        yield columns, take_out(columns[part.extra], lacks, list(part.columns.values()), fields)


def _write(part: PromoteTask, io: FileIO, old: Old, attempt: int, count: TakenCount) -> tuple[StagedFile, ...]:
    schema = part.spec.schema
    writer = writer_for(part.spec, old.number, attempt)
    try:
        for columns, done in _taken(part, io, old, tuple(schema.names)):
            count.add(done)
            columns[part.extra] = pc.if_else(done.gets, _as(done.left, columns[part.extra].type), columns[part.extra])
            for name, values in zip(part.columns, done.values, strict=True):
                columns[name] = first_valid(columns[name], _as(values, columns[name].type))
            writer.write(pa.record_batch([_as(columns[f.name], f.type) for f in schema], schema=schema))
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)
