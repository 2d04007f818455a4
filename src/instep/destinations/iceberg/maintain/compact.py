"""Puts small data files together and takes deleted rows out of others, in fenced commits that change no row.

Columns that were dropped and may still be taken back are written as well, under their field ids: whoever takes the drop
back finds their values where they were.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.types import NestedField

from instep.crash import crashpoint
from instep.destinations.base import Commit, Ref, Upkeep
from instep.destinations.iceberg.backfill.fill import been_through, folder_name
from instep.destinations.iceberg.backfill.fill_task import old_file
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.commit.position_deletes import path_of
from instep.destinations.iceberg.commit.producer import by_spec
from instep.destinations.iceberg.commit.replace_files import Replaced, ReplaceFiles
from instep.destinations.iceberg.commit.shard_table import land, own_data
from instep.destinations.iceberg.evolve.undo import now_ms, undoable
from instep.destinations.iceberg.maintain.compact_plan import CompactionPlan, sort_columns
from instep.destinations.iceberg.maintain.compact_task import Bin, Packed, pack
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.files import arrow_schema, data_files
from instep.destinations.iceberg.metadata.partition import partitioning
from instep.destinations.iceberg.metadata.records import STATE, exact_rows, load_state, state_record
from instep.destinations.iceberg.metadata.updates import MAIN, ref_is, schema_is
from instep.destinations.iceberg.write.load import summary
from instep.errors import DestinationError
from instep.stage.files.place import keep_only
from instep.stage.spec import StageSpec, SystemColumns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAINTAINED = "instep.maintained"
ENTRIES = 10_000
"""Of one manifest that is rewritten."""
COMMIT_BYTES = 1 << 30
"""About what one commit exchanges."""
SPARK_BYTES = 512 << 20
"""Files of more bytes are written by Spark tasks, if there may be a session."""


def compact(lake: Lake, ref: Ref, found: CompactionPlan, work: Upkeep) -> list[Packed]:
    """Return what was put together; raises Conflict if the table moves meanwhile: what is committed by then stays."""
    writing, done = (
        _Writing(lake, ref, work, found.table, f"{work.run}-maintain-{uuid.uuid4().hex[:8]}"),
        list[Packed](),
    )
    session = work.session() if sum(_size(p) for p in found.packs) > SPARK_BYTES else None
    tasks = {t.file.file_path: t for t in found.tasks}
    for group in _commits(found.packs):
        parts = [writing.part(n, one) for n, one in enumerate(group, len(done))]
        try:
            packed = _run(session, parts)
            crashpoint("maintain.packed")
            writing.commit(packed, tasks, [] if done else found.dangling, merging=found.crowded)
        finally:
            for folder in {p.spec.location for p in parts}:
                keep_only(folder, lake.io(), writing.committed)
        crashpoint("maintain.compacted")
        done += packed
        work.on_progress(sum(p.rows for p in done), sum(f.bytes for p in done for f in p.files))
        if not work.go_on():
            break
    return done


def tidy_manifests(lake: Lake, ref: Ref, found: CompactionPlan, work: Upkeep) -> None:
    """Fewer manifests, and no delete files of files that are gone; no data file is written."""
    merging = found.crowded or found.idle
    _Writing(lake, ref, work, found.table, "").commit([], {}, found.dangling, merging=merging)
    crashpoint("maintain.compacted")


def _run(session: SparkSession | None, parts: Sequence[Bin]) -> list[Packed]:
    if session is None:
        return [pack(part, 0, None) for part in parts]
    from instep.spark.rewrite import run_parts

    return run_parts(session, pack, parts)


def _size(tasks: Sequence[FileScanTask]) -> int:
    return sum(t.file.file_size_in_bytes for t in tasks)


def _commits(packs: Sequence[Sequence[FileScanTask]]) -> Iterator[list[Sequence[FileScanTask]]]:
    group: list[Sequence[FileScanTask]] = []
    for one in packs:
        if group and sum(map(_size, group)) + _size(one) > COMMIT_BYTES:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def extended(table: Table, fields: Sequence[NestedField]) -> Schema:
    """Return the table's schema and after it these columns, under names that no other column has."""
    taken = {name.lower() for name in table.schema().column_names}
    more = []
    for field in fields:
        name = f"dropped_{field.field_id}"
        while name in taken:
            name = f"_{name}"
        more.append(field.model_copy(update={"name": name, "required": False, "doc": None}))
    return Schema(*table.schema().fields, *more, schema_id=table.schema().schema_id)


class _Writing:
    """The commits of one compaction, each onto the one before."""

    def __init__(self, lake: Lake, ref: Ref, work: Upkeep, table: Table, stem: str) -> None:
        self.lake, self.ref, self.work, self.table, self.stem = lake, ref, work, table, stem
        self.committed: list[str] = []
        metadata = json.loads(table.metadata.model_dump_json())
        undoable_ids = undoable(metadata, lake.config.undo_days)
        schemas = sorted(table.schemas().values(), key=lambda s: s.schema_id)
        old = {f.field_id: f for s in schemas for f in s.fields if f.field_id in undoable_ids}
        self.schema = extended(table, [old[i] for i in sorted(old)])
        nothing: dict[str, Any] = {
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
            "properties": {},
            "current_snapshot_id": None,
            "schemas": [self.schema],
        }
        self._light = table.metadata.model_copy(update=nothing)
        self._order = sort_columns(table) or ()

    def part(self, number: int, tasks: Sequence[FileScanTask]) -> Bin:
        """Its folder says which backfills all of the files have been through."""
        through = frozenset.intersection(*(been_through(t.file.file_path) for t in tasks))
        folder = folder_name(self.stem, sorted(through)) if through else self.stem
        target = max(self.work.how.target_file_size, *(t.file.file_size_in_bytes for t in tasks), 0)
        spec = StageSpec(
            table=".".join(self.ref),
            columns=(),
            system=SystemColumns(),
            schema=arrow_schema(self.schema),
            location=f"{own_data(self.table)}/{folder}",
            quarantine="",
            run=self.work.run,
            synced=0,
            file_bytes=2 * target,
            io=self.lake.io(),
            partition=partitioning(self.table.metadata),
        )
        olds = tuple(old_file(n, t) for n, t in enumerate(tasks))
        return Bin(number, self._light, spec, olds, self._order, self.lake.io())

    def commit(
        self, packed: Sequence[Packed], tasks: Mapping[str, FileScanTask], more: Sequence[DataFile], *, merging: bool
    ) -> None:
        """One fenced commit onto the snapshot that was read; what the last load recorded is repeated."""
        self.table = land(self.table, lambda now: self._commit(now, packed, tasks, more, merging=merging))

    def _commit(
        self,
        table: Table,
        packed: Sequence[Packed],
        tasks: Mapping[str, FileScanTask],
        more: Sequence[DataFile],
        *,
        merging: bool,
    ) -> Table:
        metadata = json.loads(table.metadata.model_dump_json())
        base, state = table.metadata.current_snapshot(), load_state(metadata)
        assert base is not None, "a table without rows has no files"
        assert state is not None, "a table without a load is left alone"
        old = [tasks[path] for p in packed for path in p.paths]
        for one in packed:
            _check_count(self.ref, one, [tasks[path] for path in one.paths])
        change = TableCommit(table)
        change.require(ref_is(MAIN, base.snapshot_id))
        change.require(*schema_is(metadata["current-schema-id"], metadata["last-column-id"]))
        as_loaded = Commit(state.run, state.fence, state.cursor, state.accepted)
        leaving = {d.file_path: d for t in old for d in t.delete_files if path_of(d) is not None}
        replaced = Replaced([t.file for t in old], [*leaving.values(), *more])
        staged = [f for p in packed for f in p.files]
        new = data_files(staged, change.metadata, self.schema)
        kind = Merging if merging else Compaction
        snapshot = change.exchange(new, replaced, summary(as_loaded) | {MAINTAINED: self.work.run}, kind)
        rows = exact_rows(metadata, base.snapshot_id)
        change.properties({STATE: state_record(as_loaded, snapshot, rows, deleted=state.deleted)[STATE]})
        change.properties(maintained_now(change))
        landed = change.land(self.work.fence)
        self.committed += [f.path for f in staged]
        return landed.refresh()


def maintained_now(change: TableCommit) -> dict[str, str]:
    """Return the property that says when the table was maintained last, and how many files it had then."""
    return {MAINTAINED: json.dumps({"at": now_ms(), "files": change.totals().get("data-files", 0)})}


def _check_count(ref: Ref, packed: Packed, tasks: Sequence[FileScanTask]) -> None:
    """Raise DestinationError before rows could be lost."""
    rows = sum(t.file.record_count for t in tasks)
    gone = sum(d.record_count for t in tasks for d in t.delete_files)
    if not rows - gone <= packed.rows <= rows:
        raise DestinationError(
            f"table {'.'.join(ref)}: {packed.rows:,} rows were written in the place of {rows:,} with {gone:,} deletes",
            hint="nothing was committed; check the files with `instep verify`",
        )


class Compaction(ReplaceFiles):
    """An exchange that readers of changes may skip: no row comes or goes."""

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        made = super()._summary(snapshot_properties or {})
        return Summary(Operation.REPLACE, **made.additional_properties)


class Merging(Compaction):
    """Commit that merges the remaining entries into as few manifests as possible."""

    def _existing_manifests(self) -> list[ManifestFile]:
        snapshot = self._transaction.table_metadata.snapshot_by_name(self._target_branch or MAIN)
        found = snapshot.manifests(self._io) if snapshot else []
        data = [e for m in found if m.content == ManifestContent.DATA for e in self.fetch_manifest_entry(m)]
        data = [e for e in data if e.data_file not in self._deleted_data_files]
        deletes = [m for m in found if m.content == ManifestContent.DELETES]
        slices = [(spec, part) for spec, found in by_spec(data) for part in _slices(found)]
        return [*(self._written(spec, part) for spec, part in slices), *self._without(deletes)]

    def _written(self, spec: int, entries: Sequence[ManifestEntry]) -> ManifestFile:
        with self.new_manifest_writer(self.spec(spec)) as writer:
            for entry in entries:
                writer.existing(entry)
        return writer.to_manifest_file()


def _slices(entries: Sequence[ManifestEntry]) -> Iterator[Sequence[ManifestEntry]]:
    for start in range(0, len(entries), ENTRIES):
        yield entries[start : start + ENTRIES]


__all__ = ["MAINTAINED", "compact", "maintained_now", "tidy_manifests"]
