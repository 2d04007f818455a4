"""Compact small data files and remove deleted rows from others, in fenced commits that change no row.

Columns that were dropped and may still be taken back are written as well, under their field ids: whoever takes the drop
back finds their values where they were.

What a compaction of a table would write again, from manifests alone.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.types import NestedField

from instep.crash import crashpoint
from instep.destinations.base import Commit, MaintenanceSpec, Ref
from instep.destinations.iceberg.backfill.fill import been_through, folder_name
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.commit.new_files import NewFiles
from instep.destinations.iceberg.commit.position_deletes import path_of
from instep.destinations.iceberg.commit.row_reader import check_count, old_file
from instep.destinations.iceberg.commit.shard_table import ShardTable, land, own_data, planned
from instep.destinations.iceberg.commit.snapshots import Replaced, ReplaceFiles, by_spec
from instep.destinations.iceberg.evolve.undo import now_ms, undoable
from instep.destinations.iceberg.maintain.compact_task import FileGroup, Packed, pack
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.files import arrow_schema, data_files
from instep.destinations.iceberg.metadata.partition import carried, partitioning, place_of, why_not_loaded
from instep.destinations.iceberg.metadata.records import STATE, exact_rows, load_state, read_pending, state_record
from instep.destinations.iceberg.metadata.updates import MAIN, ref_is, schema_is
from instep.destinations.iceberg.write.load import load_ours, summary
from instep.destinations.parts import HERE_BYTES, run_tasks
from instep.schema.maintenance import FileFacts, Maintenance, bins
from instep.stage.spec import StageSpec, SystemColumns

MAINTAINED = "instep.maintained"
ENTRIES = 10_000
"""Of one manifest that is rewritten."""
COMMIT_BYTES = 1 << 30
"""About what one commit exchanges."""


def compact(lake: Lake, ref: Ref, plan: CompactionPlan, work: MaintenanceSpec) -> list[Packed]:
    """Return what was compacted; raises Conflict if the table moves meanwhile: what is committed by then stays."""
    writing, done = (
        _CompactionCommits(lake, ref, work, plan.table, f"{work.run}-maintain-{uuid.uuid4().hex[:8]}"),
        list[Packed](),
    )
    session = work.session() if sum(_size(p) for p in plan.packs) > HERE_BYTES else None
    tasks = {t.file.file_path: t for t in plan.tasks}
    for group in _commits(plan.packs):
        parts = [writing.part(n, files) for n, files in enumerate(group, len(done))]
        with writing.new_files.removed_unless_landed(*{p.spec.location for p in parts}):
            packed: list[Packed] = run_tasks(session, pack, parts, "rewrite")
            crashpoint("maintain.packed")
            writing.commit(packed, tasks, [] if done else plan.dangling, merging=plan.has_too_many_manifests)
        crashpoint("maintain.compacted")
        done += packed
        work.on_progress(sum(p.rows for p in done), sum(f.bytes for p in done for f in p.files))
        if not work.go_on():
            break
    return done


def tidy_manifests(lake: Lake, ref: Ref, plan: CompactionPlan, work: MaintenanceSpec) -> None:
    """Merge manifests and remove delete files of files that are gone; no data file is written."""
    merging = plan.has_too_many_manifests or plan.idle
    _CompactionCommits(lake, ref, work, plan.table, "").commit([], {}, plan.dangling, merging=merging)
    crashpoint("maintain.compacted")


def _size(tasks: Sequence[FileScanTask]) -> int:
    return sum(t.file.file_size_in_bytes for t in tasks)


def _commits(packs: Sequence[Sequence[FileScanTask]]) -> Iterator[list[Sequence[FileScanTask]]]:
    group: list[Sequence[FileScanTask]] = []
    for files in packs:
        if group and sum(map(_size, group)) + _size(files) > COMMIT_BYTES:
            yield group
            group = []
        group.append(files)
    if group:
        yield group


def extended(table: Table, fields: Sequence[NestedField]) -> Schema:
    """Return the table's schema and after it these columns, under names that no other column has."""
    names = {name.lower() for name in table.schema().column_names}
    more = []
    for field in fields:
        name = f"dropped_{field.field_id}"
        while name in names:
            name = f"_{name}"
        more.append(field.model_copy(update={"name": name, "required": False, "doc": None}))
    return Schema(*table.schema().fields, *more, schema_id=table.schema().schema_id)


class _CompactionCommits:
    """The commits of one compaction, each onto the one before."""

    def __init__(self, lake: Lake, ref: Ref, work: MaintenanceSpec, table: Table, stem: str) -> None:
        self.lake, self.ref, self.work, self.table, self.stem = lake, ref, work, table, stem
        self.new_files = NewFiles(lake.io())
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

    def part(self, number: int, tasks: Sequence[FileScanTask]) -> FileGroup:
        """Return one bin; its folder is named after the backfills that all of its files have been through."""
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
        return FileGroup(number, self._light, spec, olds, self._order, self.lake.io())

    def commit(
        self, packed: Sequence[Packed], tasks: Mapping[str, FileScanTask], more: Sequence[DataFile], *, merging: bool
    ) -> None:
        """Commit once, inside the fence, onto the snapshot that was read; the record of the last load is repeated."""
        with self.new_files.landing([f.path for p in packed for f in p.files]):
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
        for part in packed:
            check_count(".".join(self.ref), part.rows, [tasks[path] for path in part.paths])
        change = TableCommit(table)
        change.require(ref_is(MAIN, base.snapshot_id))
        change.require(*schema_is(metadata["current-schema-id"], metadata["last-column-id"]))
        as_loaded = Commit(state.run, state.fence, state.cursor, state.accepted)
        leaving = {d.file_path: d for t in old for d in t.delete_files if path_of(d) is not None}
        replaced = Replaced([t.file for t in old], [*leaving.values(), *more])
        staged = [f for p in packed for f in p.files]
        new = data_files(staged, change.metadata, self.schema)
        kind = ManifestMerge if merging else Compaction
        snapshot = change.exchange(new, replaced, summary(as_loaded) | {MAINTAINED: self.work.run}, kind)
        rows = exact_rows(metadata, base.snapshot_id)
        change.properties({STATE: state_record(as_loaded, snapshot, rows, deleted=state.deleted)[STATE]})
        change.properties(maintained_now(change))
        return change.land(self.work.fence).refresh()


def maintained_now(change: TableCommit) -> dict[str, str]:
    """Return the property that says when the table was maintained last, and how many files it had then."""
    return {MAINTAINED: json.dumps({"at": now_ms(), "files": change.totals().get("data-files", 0)})}


class Compaction(ReplaceFiles):
    """An exchange that readers of changes may skip: no row comes or goes."""

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        changed = super()._summary(snapshot_properties or {})
        return Summary(Operation.REPLACE, **changed.additional_properties)


class ManifestMerge(Compaction):
    """Commit that merges the remaining entries into as few manifests as possible."""

    def _existing_manifests(self) -> list[ManifestFile]:
        snapshot = self._transaction.table_metadata.snapshot_by_name(self._target_branch or MAIN)
        manifests = snapshot.manifests(self._io) if snapshot else []
        data = [e for m in manifests if m.content == ManifestContent.DATA for e in self.fetch_manifest_entry(m)]
        data = [e for e in data if e.data_file not in self._deleted_data_files]
        deletes = [m for m in manifests if m.content == ManifestContent.DELETES]
        slices = [(spec, part) for spec, manifests in by_spec(data) for part in _slices(manifests)]
        return [*(self._written(spec, part) for spec, part in slices), *self._without(deletes)]

    def _written(self, spec: int, entries: Sequence[ManifestEntry]) -> ManifestFile:
        with self.new_manifest_writer(self.spec(spec)) as writer:
            for entry in entries:
                writer.existing(entry)
        return writer.to_manifest_file()


def _slices(entries: Sequence[ManifestEntry]) -> Iterator[Sequence[ManifestEntry]]:
    for start in range(0, len(entries), ENTRIES):
        yield entries[start : start + ENTRIES]


MANIFESTS = 20
"""So many manifests of a table are left as they are."""
_MONOTONE = ("identity", "truncate", "year", "month", "day", "hour")


@dataclass(frozen=True)
class CompactionPlan:
    """Compaction plan for a table's current snapshot."""

    table: Table
    metadata: Mapping[str, Any]
    tasks: Sequence[FileScanTask] = ()
    deletes: Sequence[DataFile] = ()
    manifests: int = 0
    idle: bool = False
    """An earlier partition spec is kept by a manifest of files that are gone, and by nothing else."""
    packs: Sequence[Sequence[FileScanTask]] = ()
    """The files of each bin. `dangling`: delete files of data files that are gone."""
    why_not: str = ""
    """Why nothing of it may be rewritten."""

    @property
    def dangling(self) -> list[DataFile]:
        live = {t.file.file_path for t in self.tasks}
        return [d for d in self.deletes if (path := path_of(d)) is not None and path not in live]

    @property
    def has_too_many_manifests(self) -> bool:
        return self.manifests > MANIFESTS

    @property
    def bytes(self) -> int:
        """Return the bytes of data files and delete files."""
        return sum(t.file.file_size_in_bytes for t in self.tasks) + sum(d.file_size_in_bytes for d in self.deletes)

    @property
    def files(self) -> list[DataFile]:
        return [t.file for t in self.tasks]


def plan_compaction(lake: Lake, ref: Ref, how: Maintenance, *, moving: bool = False) -> CompactionPlan:
    """Read manifests, no data file. Files are in the order in which their rows came. `moving`: those under an earlier
    partition spec are all rewritten, under the current one."""
    table, metadata = load_ours(lake, ref)
    snapshot = table.metadata.current_snapshot()
    if snapshot is None or read_pending(ref, metadata) or load_state(metadata) is None:
        return CompactionPlan(table, metadata, why_not="it has not been loaded yet")
    manifests = snapshot.manifests(table.io)
    entries = [e for m in manifests for e in m.fetch_manifest_entry(table.io, discard_deleted=True)]
    came = {e.data_file.file_path: e.sequence_number or 0 for e in entries}
    tasks = sorted(planned(table), key=lambda t: (came[t.file.file_path], t.file.file_path))
    deletes = [e.data_file for e in entries if e.data_file.content != DataFileContent.DATA]
    if isinstance(table, ShardTable):
        deletes = [d for d in deletes if table.has(d)]
    live = {m.partition_spec_id for m in manifests if m.has_added_files() or m.has_existing_files()}
    idle = moving and not {m.partition_spec_id for m in manifests} <= {*live, table.metadata.default_spec_id}
    plan = CompactionPlan(table, metadata, tasks, deletes, len(manifests), idle)
    if why := _reason_not_compactable(plan):
        return replace(plan, why_not=why)
    stays = table.metadata.default_spec_id if moving else None
    groups = _by_place(tasks)
    return replace(plan, packs=[pack for group in groups for pack in _bin_pack(group, how, stays)])


def _by_place(tasks: Sequence[FileScanTask]) -> list[list[FileScanTask]]:
    """Group files by partition: only files of one partition are compacted together."""
    groups: dict[object, list[FileScanTask]] = {}
    for task in tasks:
        groups.setdefault(place_of(task.file), []).append(task)
    return list(groups.values())


def _bin_pack(tasks: Sequence[FileScanTask], how: Maintenance, stays: int | None) -> list[list[FileScanTask]]:
    """Pack files of one partition into bins; all of them, unless they are under the spec that `stays`."""
    if stays is not None and tasks[0].file.spec_id != stays:
        file_scan_tasks: list[list[FileScanTask]] = []
        for task in tasks:
            if (
                not file_scan_tasks
                or sum(t.file.file_size_in_bytes for t in (*file_scan_tasks[-1], task)) > how.target_file_size
            ):
                file_scan_tasks.append([])
            file_scan_tasks[-1].append(task)
        return file_scan_tasks
    return [[tasks[i] for i in places] for places in bins([_facts(t) for t in tasks], how)]


def _reason_not_compactable(plan: CompactionPlan) -> str:
    if any(d.content != DataFileContent.POSITION_DELETES for d in plan.deletes):
        return "it has deletes by value, which another program has written"
    if why := why_not_loaded(plan.metadata):
        return why
    metadata = plan.table.metadata
    specs, schema = metadata.specs(), metadata.schema()
    if any(not carried(specs[spec], schema) for spec in {f.spec_id for f in (*plan.files, *plan.deletes)}):
        return "it has files in partitions by a column that no longer exists"
    if any(t.file.file_format != FileFormat.PARQUET for t in plan.tasks):
        return "it has files that are not Parquet, which another program has written"
    if sort_columns(plan.table) is None:
        return "it is sorted by a function of a column that has no order of its own"
    return ""


def sort_columns(table: Table) -> tuple[tuple[str, str], ...] | None:
    """Return the sort order as columns and directions; None if it cannot be said so."""
    order = []
    for field in table.sort_order().fields:
        name = table.schema().find_column_name(field.source_id)
        if name is None or "." in name or not str(field.transform).startswith(_MONOTONE):
            return None
        order.append((name, "descending" if str(field.direction).upper().startswith("DESC") else "ascending"))
    return tuple(order)


def _facts(task: FileScanTask) -> FileFacts:
    gone = sum(d.record_count for d in task.delete_files if path_of(d) is not None)
    rows = task.file.record_count
    return FileFacts(task.file.file_size_in_bytes, rows, min(gone, rows))


__all__ = ["MAINTAINED", "compact", "maintained_now", "tidy_manifests"]
