"""Rewrites columns that Iceberg cannot promote in place: every value cast, all files new, one commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from instep.destinations.base import Commit
from instep.destinations.iceberg.commit import Change
from instep.destinations.iceberg.evolve import Evolution, Rewrite
from instep.destinations.iceberg.files import FIELD_ID, arrow_schema, data_files
from instep.errors import IllegalChange
from instep.stage.cast import cast
from instep.stage.spec import StagedFile

FILE_ROWS = 4_000_000


@contextmanager
def rewritten(table: Table, change: Change, evolution: Evolution, commit: Commit) -> Iterator[None]:
    """Adds the rewritten files to `change`, if a column needs it; takes them away again if the commit fails."""
    if not evolution.rewrites or table.metadata.current_snapshot() is None:
        yield
        return
    files: list[StagedFile] = []
    try:
        files += _write(table, change.metadata.schema(), evolution.rewrites, commit)
        change.replace(
            data_files(files, change.metadata), {"instep.run": commit.run, "instep.fence": str(commit.fence)}
        )
        yield
    except BaseException:
        for file in files:
            with suppress(OSError):
                table.io.delete(file.path)
        raise


def _write(table: Table, schema: Schema, rewrites: tuple[Rewrite, ...], commit: Commit) -> Iterator[StagedFile]:
    """Streams the table's rows through the casts into files of at most `FILE_ROWS` rows."""
    target, casts = arrow_schema(schema), {r.after.id: r for r in rewrites}
    batches = (_batch(b, target, casts) for b in table.scan().to_arrow_batch_reader() if b.num_rows)
    number = 0
    while (first := next(batches, None)) is not None:
        path = f"{table.location()}/data/rewrite-{commit.run}-{commit.fence}-{number}.parquet"
        collected: list[Any] = []
        with (
            table.io.new_output(path).create(overwrite=True) as stream,
            pq.ParquetWriter(stream, target, compression="zstd", metadata_collector=collected) as writer,
        ):
            rows = 0
            batch: pa.RecordBatch | None = first
            while batch is not None:
                writer.write_batch(batch)
                rows += batch.num_rows
                batch = next(batches, None) if rows < FILE_ROWS else None
        yield StagedFile("", number, path, rows, len(table.io.new_input(path)), _footer(collected[0]))
        number += 1


def _footer(metadata: pq.FileMetaData) -> bytes:
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    return bytes(sink.getvalue())


def _batch(batch: pa.RecordBatch, target: pa.Schema, casts: Mapping[int, Rewrite]) -> pa.RecordBatch:
    by_id = {_id(f): batch.column(i) for i, f in enumerate(batch.schema)}
    return pa.record_batch([_column(f, by_id, casts, batch.num_rows) for f in target], schema=target)


def _id(field: pa.Field) -> int:
    return int(field.metadata[FIELD_ID])


def _column(field: pa.Field, by_id: Mapping[int, pa.Array], casts: Mapping[int, Rewrite], rows: int) -> pa.Array:
    if rewrite := casts.get(_id(field)):
        done = cast(by_id[rewrite.before.id], rewrite.step.before.type, field.type, rewrite.step.after.type)
        if done.misfits:
            reason = next(iter(done.misfits.values()))
            raise IllegalChange(
                f"column {field.name!r}: values do not fit {rewrite.step.after.type} ({reason})",
                hint="load the whole table again with `instep sync --full`: misfits are kept in quarantine there",
            )
        return done.values
    if _id(field) in by_id:
        values = by_id[_id(field)]
        return values if values.type == field.type else values.cast(field.type)
    return pa.nulls(rows, field.type)
