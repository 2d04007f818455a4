"""Rewrites columns that Iceberg cannot promote in place: every value cast, all files new, one commit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from instep.destinations.base import Commit, PartChange
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.commit.new_files import NewFiles
from instep.destinations.iceberg.commit.shard_table import ShardTable, shard_of
from instep.destinations.iceberg.evolve.schema_update import Rewrite
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.files import FIELD_ID, arrow_schema, data_files
from instep.destinations.iceberg.metadata.partition import partitioning
from instep.destinations.iceberg.metadata.records import current_fields
from instep.destinations.iceberg.metadata.schema import IcebergField, data_type
from instep.destinations.iceberg.metadata.shards import PLACE, TOTALS, own_name, shards_of
from instep.destinations.rows import cast_all
from instep.schema.catalog.types import DataType
from instep.stage.files.partitioned import writer_for
from instep.stage.spec import StagedFile, StageSpec, SystemColumns


@contextmanager
def rewritten(
    lake: Lake, table: Table, change: TableCommit, rewrites: Sequence[Rewrite], commit: Commit
) -> Iterator[None]:
    """Adds the rewritten files to `change`, if a column or the values of a shard's rows need it; takes them away again
    if the commit is refused."""
    part = commit.part if commit.part and commit.part.moves else None
    if not (rewrites or part) or table.metadata.current_snapshot() is None:
        yield
        return
    folder, new_files = f"{_data(table, change, commit)}/{commit.run}-rewrite-{commit.fence}", NewFiles(lake.io())
    with new_files.removed_unless_landed(folder):
        moves = _moves(table, change, part) if part else None
        source = table if rewrites or part is None else ShardTable(table, (part.column, part.shard))
        files = _write(source, change, _Casts(rewrites, moves), commit, replace(_SPEC, location=folder, io=lake.io()))
        made = data_files(files, change.metadata)
        properties = {"instep.run": commit.run, "instep.fence": str(commit.fence)}
        if isinstance(source, ShardTable):
            change.exchange(made, source.replaced(), properties)
            change.properties(
                {own_name(source.within[1], k): v for k, v in source.totals_after(change.metadata).items()}
            )
        else:
            change.replace(made, properties)
            change.properties(_totals(change, commit.part, made) if commit.part else {})
        with new_files.landing([f.path for f in files]):
            yield


def _data(table: Table, change: TableCommit, commit: Commit) -> str:
    """Return where what a run leaves behind is removed."""
    own = change.metadata.properties.get(own_name(commit.part.shard, PLACE)) if commit.part else None
    return f"{table.location()}/data/{own}" if own else f"{table.location()}/data"


_SPEC = StageSpec("", (), SystemColumns(), pa.schema([]), "", "", "", 0)


@dataclass(frozen=True)
class _ColumnMove:
    """A column (by its field id, as it was) whose values go to another one."""

    field: int
    type: DataType
    to: DataType


@dataclass(frozen=True)
class _Moves:
    """By the field id of the column that gets the values; `left` are those that have none afterwards. `within`: the
    shard column's field id and the shard."""

    sources: Mapping[int, _ColumnMove]
    left: frozenset[int]
    within: tuple[int, str]


@dataclass(frozen=True)
class _Casts:
    rewrites: Sequence[Rewrite]
    moves: _Moves | None = None

    def column(self, field: pa.Field, by_id: Mapping[int, pa.Array], rows: int) -> pa.Array:
        own = next((r for r in self.rewrites if r.after.id == _id(field)), None)
        values = _rewritten(field, by_id, own) if own else _stored_array(field, by_id, rows)
        return self._moved(field, by_id, values) if self.moves else values

    def _moved(self, field: pa.Field, by_id: Mapping[int, pa.Array], values: pa.Array) -> pa.Array:
        assert self.moves is not None, "asked before"
        move, number = self.moves.sources.get(_id(field)), _id(field)
        if move is None and number not in self.moves.left:
            return values
        new = pa.nulls(len(values), field.type)
        if move is not None:
            new = cast_all(field.name, by_id[move.field], move.type, move.to, field.type)
        at, shard = self.moves.within
        return pc.if_else(pc.equal(by_id[at].cast(pa.string()), shard), new, values)


def _moves(table: Table, change: TableCommit, part: PartChange) -> _Moves:
    before, after = table.schema(), change.metadata.schema()
    ids = {old: before.find_field(old).field_id for old, _ in part.moves}
    kinds = {f.id: data_type(f.type) for f in _fields(table.metadata)}
    made = {f.id: data_type(f.type) for f in _fields(change.metadata)}
    sources = {
        (at := after.find_field(new).field_id): _ColumnMove(ids[old], kinds[ids[old]], made[at])
        for old, new in part.moves
    }
    left = frozenset(i for i in ids.values() if i in made and i not in sources)
    return _Moves(sources, left, (before.find_field(part.column).field_id, part.shard))


def _fields(metadata: TableMetadata) -> tuple[IcebergField, ...]:
    return current_fields(json.loads(metadata.model_dump_json()))


def _totals(change: TableCommit, part: PartChange, files: Sequence[DataFile]) -> dict[str, str]:
    """Return what is recorded of the shards' files once all of them were rewritten."""
    shards, metadata = shards_of(change.metadata.properties), change.metadata
    found = {shard: [f for f in files if shard_of(f, metadata, part.column) == shard] for shard in shards}
    return {own_name(shard, TOTALS): json.dumps(_total(own)) for shard, own in found.items()}


def _total(files: Sequence[DataFile]) -> dict[str, int]:
    rows, size = sum(f.record_count for f in files), sum(f.file_size_in_bytes for f in files)
    return {"records": rows, "files-size": size, "data-files": len(files)}


def _write(table: Table, change: TableCommit, casts: _Casts, commit: Commit, spec: StageSpec) -> tuple[StagedFile, ...]:
    """Streams the table's rows through the casts."""
    target = arrow_schema(change.metadata.schema())
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


def _batch(batch: pa.RecordBatch, target: pa.Schema, casts: _Casts) -> pa.RecordBatch:
    by_id = {_id(f): batch.column(i) for i, f in enumerate(batch.schema)}
    return pa.record_batch([casts.column(f, by_id, batch.num_rows) for f in target], schema=target)


def _id(field: pa.Field) -> int:
    return int(field.metadata[FIELD_ID])


def _rewritten(field: pa.Field, by_id: Mapping[int, pa.Array], own: Rewrite) -> pa.Array:
    return cast_all(field.name, by_id[own.before.id], own.step.before.type, own.step.after.type, field.type)


def _stored_array(field: pa.Field, by_id: Mapping[int, pa.Array], rows: int) -> pa.Array:
    if _id(field) in by_id:
        values = by_id[_id(field)]
        return values if values.type == field.type else values.cast(field.type)
    return pa.nulls(rows, field.type)
