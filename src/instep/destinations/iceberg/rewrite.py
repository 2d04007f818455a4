"""Rewrites columns that Iceberg cannot promote in place: every value cast, all files new, one commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

import pyarrow as pa
from pyiceberg.table import Table

from instep.destinations.base import Commit
from instep.destinations.iceberg.catalog import Lake
from instep.destinations.iceberg.commit import Change
from instep.destinations.iceberg.evolve import Evolution, Rewrite
from instep.destinations.iceberg.files import FIELD_ID, arrow_schema, data_files
from instep.destinations.iceberg.partition import partitioning
from instep.errors import IllegalChange, InstepError
from instep.stage.cast import cast
from instep.stage.partitioned import writer_for
from instep.stage.place import keep_only
from instep.stage.spec import StagedFile, StageSpec, SystemColumns


@contextmanager
def rewritten(lake: Lake, table: Table, change: Change, evolution: Evolution, commit: Commit) -> Iterator[None]:
    """Adds the rewritten files to `change`, if a column needs it; takes them away again if the commit fails."""
    if not evolution.rewrites or table.metadata.current_snapshot() is None:
        yield
        return
    folder, landed = f"{table.location()}/data/{commit.run}-rewrite-{commit.fence}", False
    try:
        files = _write(table, change, evolution.rewrites, commit, replace(_SPEC, location=folder, io=lake.io()))
        change.replace(
            data_files(files, change.metadata), {"instep.run": commit.run, "instep.fence": str(commit.fence)}
        )
        yield
        landed = True
    finally:
        if not landed:
            with suppress(InstepError):
                keep_only(folder, lake.io(), ())


_SPEC = StageSpec("", (), SystemColumns(), pa.schema([]), "", "", "", 0)


def _write(
    table: Table, change: Change, rewrites: tuple[Rewrite, ...], commit: Commit, spec: StageSpec
) -> tuple[StagedFile, ...]:
    """Streams the table's rows through the casts."""
    target, casts = arrow_schema(change.metadata.schema()), {r.after.id: r for r in rewrites}
    by = partitioning(change.metadata)
    named = replace(spec, table=".".join(table.name()), schema=target, run=commit.run, partition=by)
    writer = writer_for(named, 0, 0)
    try:
        for batch in table.scan().to_arrow_batch_reader():
            if batch.num_rows:
                writer.write(_batch(batch, target, casts))
        return writer.close()
    except BaseException:
        writer.abort()
        raise


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
