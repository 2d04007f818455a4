"""What a compaction of a table would write again, from manifests alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask, Table

from instep.destinations.base import Ref
from instep.destinations.iceberg.commit.position_deletes import path_of
from instep.destinations.iceberg.commit.shard_table import ShardTable, planned
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.partition import carried, place_of, why_not_loaded
from instep.destinations.iceberg.metadata.records import load_state, read_pending
from instep.destinations.iceberg.write.load import load_ours
from instep.schema.maintenance import FileFacts, Maintenance, bins

MANIFESTS = 20
"""So many manifests of a table are left as they are."""
_MONOTONE = ("identity", "truncate", "year", "month", "day", "hour")


@dataclass(frozen=True)
class CompactionPlan:
    """Compaction plan for a table's current snapshot. `packs`: the files of each bin. `dangling`: delete files of data
    files that are gone. `idle`: an earlier partition spec is kept by a manifest of files that are gone, and by nothing
    else. `why_not`: why nothing of it may be rewritten."""

    table: Table
    metadata: Mapping[str, Any]
    tasks: Sequence[FileScanTask] = ()
    deletes: Sequence[DataFile] = ()
    manifests: int = 0
    idle: bool = False
    packs: Sequence[Sequence[FileScanTask]] = ()
    why_not: str = ""

    @property
    def dangling(self) -> list[DataFile]:
        live = {t.file.file_path for t in self.tasks}
        return [d for d in self.deletes if (path := path_of(d)) is not None and path not in live]

    @property
    def crowded(self) -> bool:
        return self.manifests > MANIFESTS

    @property
    def bytes(self) -> int:
        """Return the bytes of data files and delete files."""
        return sum(t.file.file_size_in_bytes for t in self.tasks) + sum(d.file_size_in_bytes for d in self.deletes)

    @property
    def files(self) -> list[DataFile]:
        return [t.file for t in self.tasks]


def look(lake: Lake, ref: Ref, how: Maintenance, *, moving: bool = False) -> CompactionPlan:
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
    found = CompactionPlan(table, metadata, tasks, deletes, len(manifests), idle)
    if why := _why_not(found):
        return replace(found, why_not=why)
    stays = table.metadata.default_spec_id if moving else None
    groups = _by_place(tasks)
    return replace(found, packs=[pack for group in groups for pack in _packs(group, how, stays)])


def _by_place(tasks: Sequence[FileScanTask]) -> list[list[FileScanTask]]:
    """Files of one partition are put together, and not with those of another."""
    groups: dict[object, list[FileScanTask]] = {}
    for task in tasks:
        groups.setdefault(place_of(task.file), []).append(task)
    return list(groups.values())


def _packs(tasks: Sequence[FileScanTask], how: Maintenance, stays: int | None) -> list[list[FileScanTask]]:
    """Of files of one partition; all of them, unless they are under the spec that `stays`."""
    if stays is not None and tasks[0].file.spec_id != stays:
        return _in_turn(tasks, how.target_file_size)
    return [[tasks[i] for i in one] for one in bins([_facts(t) for t in tasks], how)]


def _in_turn(tasks: Sequence[FileScanTask], size: int) -> list[list[FileScanTask]]:
    found: list[list[FileScanTask]] = []
    for task in tasks:
        if not found or sum(t.file.file_size_in_bytes for t in (*found[-1], task)) > size:
            found.append([])
        found[-1].append(task)
    return found


def _why_not(found: CompactionPlan) -> str:
    if any(d.content != DataFileContent.POSITION_DELETES for d in found.deletes):
        return "it has deletes by value, which another program has written"
    if why := why_not_loaded(found.metadata):
        return why
    metadata = found.table.metadata
    specs, schema = metadata.specs(), metadata.schema()
    if any(not carried(specs[spec], schema) for spec in {f.spec_id for f in (*found.files, *found.deletes)}):
        return "it has files in partitions by what is no column of it any more"
    if any(t.file.file_format != FileFormat.PARQUET for t in found.tasks):
        return "it has files that are not Parquet, which another program has written"
    if sort_columns(found.table) is None:
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
