"""Reads a table of a source by its accepted schema without loading it: for DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from instep.errors import Blocked, InstepError, SchemaError, argument
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.planning.projection import TableRead
from instep.schema.selection.overrides import sides
from instep.schema.selection.selection import column_is_on, is_on
from instep.sources.base import Copyable, CursorRange, Repeatable, Snapshot
from instep.sources.stream import Streams
from instep.spark.frames import FrameReader
from instep.spark.types import arrow_type
from instep.stage.spec import Chunk, InvalidValue, StageSpec, SystemColumns
from instep.suggest import unknown_table
from instep.sync.claim import resume_hint
from instep.sync.context import SyncContext
from instep.sync.detection.detect import detect
from instep.sync.detection.filters import faulty_filters
from instep.sync.loading.task_specs import stage_columns
from instep.sync.operations.verify import waiting_tables
from instep.sync.schema_changes.selected import selected_reads


def readable_columns(context: SyncContext, path: str) -> list[Column]:
    """Return the accepted columns of a table that are switched on, by the store alone.

    Raises InstepError for a table that is not accepted, Blocked for one that is paused, off, or gone from the source.
    """
    table, accepted = _table(context, path), context.store.accepted.catalog(context.name)
    seen = context.store.discoveries.get(context.name)
    catalog, identity = (seen.catalog, seen.identity) if seen else (Catalog(), "")
    switches = context.store.switches.of(context.name)
    chosen = sides(context.project_selection, switches, catalog, accepted, identity).before
    if not is_on(chosen, table)[0]:
        hint = f"switch it on: `instep selection on {argument(path)} -c {context.name}`"
        raise Blocked(f"table {path} of connection {context.name} is switched off", hint=hint)
    return [column for column in table.live if column_is_on(chosen, table, column)[0]]


def _table(context: SyncContext, path: str) -> Table:
    """Return the accepted table that syncs load."""
    if isinstance(context.source, Streams):
        raise Blocked(
            f"connection {context.name} has no tables to read again: a connector sends what has changed, once",
            hint="read the destination: `project.table(...).to_spark()`",
        )
    accepted = context.store.accepted.catalog(context.name)
    table = next((t for t in accepted.tables if t.path == path), None)
    if table is None:
        message = f"connection {context.name} has accepted no table {path}"
        raise unknown_table(message, path, [t.path for t in accepted.tables])
    if table.retained:
        raise Blocked(f"table {path} is no longer in the source", hint="its rows are at the destination")
    if stopped := next((p for p in context.store.pauses.active(context.name) if p.table in (None, table.ref)), None):
        what = f"table {path}" if stopped.table else f"connection {context.name}"
        raise Blocked(f"{what} is paused: {stopped.reason}", hint=resume_hint(context.name, stopped))
    return table


@contextmanager
def open_repeatable(context: SyncContext) -> Iterator[Snapshot]:
    """Open a snapshot that shows all tasks the same rows; raises Blocked for a source that has none, or has no
    access for tasks."""
    source = context.source
    with source.copied_snapshot() if isinstance(source, Copyable) else source.snapshot() as snapshot:
        if isinstance(snapshot.reader, FrameReader):
            raise Blocked(
                f"the source of connection {context.name} is read by Spark's own reader", hint="use spark.read.jdbc"
            )
        alone = "a read point belongs to one connection"
        if why := snapshot.reason_not_repeatable if isinstance(snapshot, Repeatable) else alone:
            raise Blocked(
                f"the source of connection {context.name} cannot show the tasks of a DataFrame the same rows: {why}",
                hint="read the destination: `project.table(...).to_spark()`",
            )
        yield snapshot


def plan_read(
    context: SyncContext, snapshot: Snapshot, path: str, columns: Sequence[str], on_invalid_value: InvalidValue
) -> tuple[Table, StageSpec, list[Chunk]]:
    """Return a table as the source has it, how tasks read these columns of it, and its chunks. Nothing is written.

    As a sync reads it: renamed objects under their accepted names, what the source has no more as NULL, hashed columns
    as hashes, filtered rows left out. Raises InstepError where a sync would not read the table either.
    """
    readable = {c.alias or c.name: c for c in readable_columns(context, path)}
    if list(readable) != list(columns):
        raise SchemaError(
            f"table {path} now has the columns {', '.join(readable)}, but was to be read with {', '.join(columns)}",
            hint="load it again, without a schema of your own",
        )
    read = _read(context, snapshot, path)
    own = [c for c in read.columns if (c.column.alias or c.column.name) in readable]
    read = replace(read, columns=tuple(own))
    columns_read = stage_columns(read, snapshot.query_types(read))
    spec = StageSpec(
        table=path,
        columns=tuple(replace(c, key=0, nullable=True) for c in columns_read),  # no row is refused for a NULL
        system=SystemColumns(),
        schema=pa.schema([pa.field(c.name, arrow_type(c.type)) for c in columns_read]),
        location="",
        quarantine="",
        run="read",
        synced=0,
        on_invalid_value=on_invalid_value,
        salt=context.salt,
        path=path,
    )
    return read.source, spec, snapshot.chunks(read, path, CursorRange())


def _read(context: SyncContext, snapshot: Snapshot, path: str) -> TableRead:
    detection = detect(context, snapshot.discover(), count=False, recalled=True)
    reads, missing = selected_reads(context, detection)
    read = next((r for r in reads if r.table.path == path), None)
    if read is None:
        why = next((m.why for m in missing if m.table.path == path), f"table {path} is switched off")
        raise Blocked(f"{path} cannot be read: {why}", hint="see `instep changes list`")
    closed = {**faulty_filters(context, snapshot, [read]), **detection.denied, **waiting_tables(context, detection)}
    if stopped := closed.get(read.table.ref):
        raise InstepError(f"{path} cannot be read: {stopped}", hint="see `instep changes list`")
    return read
