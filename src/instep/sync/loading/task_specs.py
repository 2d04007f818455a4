"""Translation of loads into tasks: the staging specs and the chunks of one Spark job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from instep.destinations.base import StagingTarget
from instep.schema.catalog.types import DataType, String
from instep.schema.planning.projection import TableRead
from instep.sources.base import CursorRange, Snapshot
from instep.sources.stream import GIVEN, Operations
from instep.stage.field_metadata import value_of
from instep.stage.spec import Chunk, StageColumn, StageSpec, SystemColumns
from instep.sync.context import SyncContext
from instep.sync.loading.table_load import Load


def system_columns(context: SyncContext, load: Load) -> SystemColumns:
    """Return the system columns of a table: those with a key know deleted rows, those without have a row id."""
    prefix = context.naming.prefix
    keyed = bool(load.table.key)
    history = keyed and load.table.history
    return SystemColumns(
        synced=f"{prefix}synced",
        deleted=f"{prefix}deleted" if keyed else "",
        id="" if keyed else f"{prefix}id",
        meta=f"{prefix}meta",
        extra=f"{prefix}extra" if load.table.extra is not None else "",
        valid_from=f"{prefix}valid_from" if history else "",
        valid_to=f"{prefix}valid_to" if history else "",
        current=f"{prefix}current" if history else "",
    )


def stage_columns(
    read: TableRead,
    yields: Mapping[str, DataType],
    only: tuple[str, ...] = (),
    types: Mapping[str, DataType] | None = None,
) -> tuple[StageColumn, ...]:
    """Return the accepted columns of a read in order (`only` these accepted names, if any); `types` are those of
    columns that are stored as another one."""
    stored = types or {}
    return tuple(
        StageColumn(
            name=c.column.alias or c.column.name,
            type=stored.get(c.column.alias or c.column.name, c.column.type),
            source=yields[c.column.name] if c.source is not None else None,
            path=c.column.name,
            nullable=c.column.nullable,
            key=c.column.key,
            hashed=c.hashed,
        )
        for c in read.columns
        if not only or c.column.name in only
    )


def stage_spec(
    context: SyncContext,
    load: Load,
    target: StagingTarget,
    yields: Mapping[str, DataType],
    run: str,
    synced: int,
    notes: Mapping[str, str] | None = None,
) -> StageSpec:
    """Return how the rows of a load become files of the destination table. `notes`: as the specification has them."""
    retained = tuple(StageColumn(c.alias or c.name, c.type, None, c.name) for c in load.table.columns if c.retained)
    return StageSpec(
        table=load.spec,
        columns=stage_columns(load.read, yields, types=target.types) + retained,
        system=system_columns(context, load),
        schema=target.schema,
        location=f"{target.location}/{load.folder}",
        quarantine=target.quarantine,
        run=run,
        synced=synced,
        on_invalid_value=load.on_invalid_value,
        read_at=load.read_at,
        io=target.io,
        salt=context.salt,
        compression=target.merge_compression if load.merges else "zstd",
        path=load.table.path,
        holds=load.holds,
        extra=_extra_columns(load, yields),
        notes=notes or {},
        partition=None if load.merges else target.partition,
    )


def _extra_columns(load: Load, yields: Mapping[str, DataType]) -> tuple[StageColumn, ...]:
    """Return extra columns by the names that the source gives them."""
    columns = ((c.column, c.source, c.hashed) for c in load.extra)
    return tuple(
        StageColumn(column.name, column.type, yields[column.name], source.name, hashed=hashed)
        for column, source, hashed in columns
        if source is not None
    )


def key_spec(
    context: SyncContext, load: Load, target: StagingTarget, yields: Mapping[str, DataType], run: str, synced: int
) -> StageSpec:
    """Return how the keys of a whole table become files: for finding rows that the source has deleted. Nothing is held
    here: what has no key is held with its whole row."""
    columns = stage_columns(load.read, yields, load.table.key, target.types)
    names = {c.name for c in columns}
    fixed = [f for f in target.schema if value_of(f) is not None and f.name not in names]
    fields = [*fixed, *(target.schema.field(c.name) for c in columns)]
    schema = pa.schema(fields, metadata=target.schema.metadata)
    return StageSpec(
        table=load.key_spec,
        columns=columns,
        system=SystemColumns(),
        schema=schema,
        location=f"{target.location}/{load.folder}",
        quarantine="",
        run=run,
        synced=synced,
        io=target.io,
        salt=context.salt,
    )


def altered_spec(rows: StageSpec, load: Load) -> StageSpec:
    """Return how rows of which only some columns are given become files, which the columns' names are in, too: they
    meet the destination's rows before they are merged."""
    own = [c for c in rows.columns if c.source is not None]
    given_names = StageColumn(GIVEN, String(), String(), GIVEN)
    names = {*(c.name for c in own), *filter(None, vars(rows.system).values())}
    fields = [f for f in rows.schema if f.name in names or value_of(f) is not None]
    schema = pa.schema([*fields, pa.field(GIVEN, pa.string())], metadata=rows.schema.metadata)
    return replace(
        rows,
        table=load.altered_spec,
        columns=(given_names, *own),
        schema=schema,
        notes={},
        partition=None,
    )


def chunks_of(load: Load, snapshot: Snapshot) -> list[Chunk]:
    """Return the queries of a load: its rows, and its keys if it looks for deleted rows."""
    if load.counts is not None:
        return _operations(load, snapshot)
    if load.changed is not None and load.log is not None:
        chunks = load.log.rows(load.wide, load.spec, load.changed)
        keys = load.log.keys(load.read, load.key_spec, load.changed) if load.asks else []
        return [*chunks, *keys, *(_all_keys(load, snapshot) if load.keys else [])]
    if not load.keys:
        return snapshot.chunks(load.wide, load.spec, load.rows)
    rows = snapshot.chunks(load.wide, load.spec, replace(load.rows, upper=None))  # a lane's view may be a later one
    lane = next((chunk.lane for chunk in rows), "")
    return [*rows, *(replace(chunk, lane=lane) for chunk in _all_keys(load, snapshot))]


def _operations(load: Load, snapshot: Snapshot) -> list[Chunk]:
    assert isinstance(snapshot, Operations)
    snapshot.place_files(load.wide)
    rows = snapshot.chunks(load.wide, load.spec, CursorRange())
    gone = snapshot.deleted_keys(load.read, load.key_spec) if load.asks else []
    return [*rows, *gone, *(snapshot.changed(load.wide, load.altered_spec) if load.alters else [])]


def _all_keys(load: Load, snapshot: Snapshot) -> list[Chunk]:
    return snapshot.chunks(load.read, load.key_spec, CursorRange(), columns=load.table.key)
