"""Rewrites columns that Iceberg cannot promote in place: every value cast, all files new, one commit.

A large table is rewritten in parts, by tasks of Spark or one after the other, and a run that is killed leaves those
that are finished to the next one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

from instep.destinations.base import Commit, FileWorkers, PartChange
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.commit.new_files import NewFiles
from instep.destinations.iceberg.commit.row_reader import ExistingFile, check_count, light, live_rows, old_file
from instep.destinations.iceberg.commit.shard_table import ShardTable, planned, shard_of
from instep.destinations.iceberg.evolve.schema_update import Rewrite
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.files import FIELD_ID, arrow_schema, data_files
from instep.destinations.iceberg.metadata.partition import partitioning, place_of
from instep.destinations.iceberg.metadata.records import current_fields
from instep.destinations.iceberg.metadata.schema import IcebergField, data_type
from instep.destinations.iceberg.metadata.shards import PLACE, TOTALS, own_name, shards_of
from instep.destinations.parts import (
    RewriteArea,
    digest,
    is_large,
    rewrite_groups,
    run_tasks,
    write_parts,
)
from instep.destinations.rows import cast_all
from instep.schema.catalog.types import DataType
from instep.stage.files.partitioned import writer_for
from instep.stage.files.place import StorageFolder
from instep.stage.files.pyiceberg_code import load_file_io
from instep.stage.spec import StagedFile, StageSpec, SystemColumns
from instep.stage.task import ChunkProgress, Report


@contextmanager
def rewritten(
    lake: Lake, table: Table, change: TableCommit, rewrites: Sequence[Rewrite], commit: Commit, workers: FileWorkers
) -> Iterator[None]:
    """Add the rewritten files to `change`, if a column or the values of a shard's rows need it; takes them away
    again if the commit is refused."""
    part = commit.part if commit.part and commit.part.moves else None
    if not (rewrites or part) or table.metadata.current_snapshot() is None:
        yield
        return
    source = table if rewrites or part is None else ShardTable(table, (part.column, part.shard))
    tasks = sorted(planned(source), key=lambda t: repr(place_of(t.file)))  # a part meets few partitions
    casts = _Casts(_casts(rewrites), _moves(table, change, part) if part else None)
    with _written(lake, table, change, tasks, casts, commit, workers) as files:
        check_count(".".join(table.name()), sum(f.rows for f in files), tasks)
        new_files = data_files(files, change.metadata)
        properties = {"instep.run": commit.run, "instep.fence": str(commit.fence)}
        if isinstance(source, ShardTable):
            change.exchange(new_files, source.replaced(), properties)
            change.properties(
                {own_name(source.shard_key[1], k): v for k, v in source.totals_after(change.metadata).items()}
            )
        else:
            change.replace(new_files, properties)
            change.properties(_totals(change, commit.part, new_files) if commit.part else {})
        yield


@contextmanager
def _written(
    lake: Lake,
    table: Table,
    change: TableCommit,
    tasks: Sequence[FileScanTask],
    casts: _Casts,
    commit: Commit,
    workers: FileWorkers,
) -> Iterator[list[StagedFile]]:
    """Yield the new files, which the block commits. Those of one part leave if it does not; several parts stay for the
    next run."""
    target, by = arrow_schema(change.metadata.schema()), partitioning(change.metadata)
    sizes = [(t.file.record_count, t.file.file_size_in_bytes) for t in tasks]
    groups = rewrite_groups(sizes, lake.config.upsert_rows)
    data, new_files, in_groups = _data(table, change, commit), NewFiles(lake.io()), len(groups) > 1
    common = digest(table.metadata.table_uuid, target.to_string(show_schema_metadata=True), by, casts)
    folder = f"{data}/rewrite-{common}" if in_groups else f"{data}/{commit.run}-rewrite-{commit.fence}"
    name = ".".join(table.name())
    spec = StageSpec(name, (), SystemColumns(), target, folder, "", commit.run, 0, io=lake.io(), partition=by)
    olds = [old_file(n, t) for n, t in enumerate(tasks)]
    parts = [
        _IcebergRewritePart(n, light(table.metadata), spec, tuple(olds[i] for i in g), casts)
        for n, g in enumerate(groups)
    ]
    large = is_large(sum(r for r, _ in sizes), sum(s for _, s in sizes), lake.config.upsert_rows)
    if not in_groups:
        session = workers.session() if large else None
        with new_files.removed_unless_landed(folder):
            files = [f for new in run_tasks(session, _write, parts, "rewrite", workers.on_progress) for f in new]
            with new_files.landing([f.path for f in files]):
                yield files
        return
    area = RewriteArea(StorageFolder(folder, lake.io()), commit.run)
    with area.cleared():
        by_digest = {digest([(o.path, o.deletes) for o in part.files]): part for part in parts}
        files = write_parts(area, by_digest, _write, workers, large=large)
    yield files
    area.clear([f.path for f in files])


def _data(table: Table, change: TableCommit, commit: Commit) -> str:
    """Return where what a run leaves behind is removed."""
    own = change.metadata.properties.get(own_name(commit.part.shard, PLACE)) if commit.part else None
    return f"{table.location()}/data/{own}" if own else f"{table.location()}/data"


@dataclass(frozen=True)
class _ColumnMove:
    """A column (by its field id, as it was) whose values go to another one."""

    field: int
    type: DataType
    to: DataType

    def cast(self, target: pa.Field, by_id: Mapping[int, pa.Array]) -> pa.Array:
        return cast_all(target.name, by_id[self.field], self.type, self.to, target.type)


def _casts(rewrites: Sequence[Rewrite]) -> dict[int, _ColumnMove]:
    return {r.after.id: _ColumnMove(r.before.id, r.step.before.type, r.step.after.type) for r in rewrites}


@dataclass(frozen=True)
class _Moves:
    """Moved values by the field id of the column that gets them; columns in `left` have no values afterwards.

    `within`: the shard column's field id and the shard.
    """

    sources: Mapping[int, _ColumnMove]
    left: frozenset[int]
    within: tuple[int, str]


@dataclass(frozen=True)
class _Casts:
    """The columns that are rewritten, by the field id of the new one."""

    rewrites: Mapping[int, _ColumnMove]
    moves: _Moves | None = None

    def column(self, field: pa.Field, by_id: Mapping[int, pa.Array], rows: int) -> pa.Array:
        own = self.rewrites.get(_id(field))
        values = own.cast(field, by_id) if own else _stored_array(field, by_id, rows)
        return self._moved_values(field, by_id, values) if self.moves else values

    def _moved_values(self, field: pa.Field, by_id: Mapping[int, pa.Array], values: pa.Array) -> pa.Array:
        assert self.moves is not None, "asked before"
        move, number = self.moves.sources.get(_id(field)), _id(field)
        if move is None and number not in self.moves.left:
            return values
        new = pa.nulls(len(values), field.type)
        if move is not None:
            new = move.cast(field, by_id)
        at, shard = self.moves.within
        return pc.if_else(pc.equal(by_id[at].cast(pa.string()), shard), new, values)


def _moves(table: Table, change: TableCommit, part: PartChange) -> _Moves:
    before, after = table.schema(), change.metadata.schema()
    ids = {old: before.find_field(old).field_id for old, _ in part.moves}
    kinds = {f.id: data_type(f.type) for f in _fields(table.metadata)}
    kinds_after = {f.id: data_type(f.type) for f in _fields(change.metadata)}
    sources = {
        (at := after.find_field(new).field_id): _ColumnMove(ids[old], kinds[ids[old]], kinds_after[at])
        for old, new in part.moves
    }
    left = frozenset(i for i in ids.values() if i in kinds_after and i not in sources)
    return _Moves(sources, left, (before.find_field(part.column).field_id, part.shard))


def _fields(metadata: TableMetadata) -> tuple[IcebergField, ...]:
    return current_fields(json.loads(metadata.model_dump_json()))


def _totals(change: TableCommit, part: PartChange, files: Sequence[DataFile]) -> dict[str, str]:
    """Return the record of the shards' files once all of them were rewritten."""
    shards, metadata = shards_of(change.metadata.properties), change.metadata
    files_of = {shard: [f for f in files if shard_of(f, metadata, part.column) == shard] for shard in shards}
    return {own_name(shard, TOTALS): json.dumps(_total(own)) for shard, own in files_of.items()}


def _total(files: Sequence[DataFile]) -> dict[str, int]:
    rows, size = sum(f.record_count for f in files), sum(f.file_size_in_bytes for f in files)
    return {"records": rows, "files-size": size, "data-files": len(files)}


@dataclass(frozen=True)
class _IcebergRewritePart:
    """Some data files whose rows are rewritten, as `spec` says."""

    number: int
    table: TableMetadata
    """Metadata without snapshots."""
    spec: StageSpec = field(repr=False)
    files: tuple[ExistingFile, ...]
    casts: _Casts


def _write(part: _IcebergRewritePart, attempt: int, report: Report | None) -> tuple[StagedFile, ...]:
    """Stream the rows of a part through the casts; IllegalChange for a value that does not fit."""
    writer, rows = writer_for(part.spec, part.number, attempt), 0
    io, before = load_file_io(dict(part.spec.io), part.spec.location), schema_to_pyarrow(part.table.schema())
    try:
        for old in part.files:
            for batch in live_rows(part.table, io, old, before.names):
                by_id = {_id(f): _stored(batch.column(f.name), f.type) for f in before}
                columns = [part.casts.column(f, by_id, batch.num_rows) for f in part.spec.schema]
                writer.write(pa.record_batch(columns, schema=part.spec.schema))
                rows += batch.num_rows
                if report is not None:
                    report(ChunkProgress(part.spec.table, rows, writer.bytes))
        files = writer.close()
    except BaseException:
        writer.abort()
        raise
    if report is not None:
        report(ChunkProgress(part.spec.table, rows, sum(f.bytes for f in files), 1))
    return files


def _id(field: pa.Field) -> int:
    return int(field.metadata[FIELD_ID])


def _stored_array(field: pa.Field, by_id: Mapping[int, pa.Array], rows: int) -> pa.Array:
    return _stored(by_id[_id(field)], field.type) if _id(field) in by_id else pa.nulls(rows, field.type)


def _stored(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)
