"""Snapshots that instep commits: files keep the spec and the partition that they were written under.

Data files in place of others that hold the same rows: the commit, and the delete files that leave with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, UpdateMetrics, update_snapshot_summaries
from pyiceberg.table.update import AddSnapshotUpdate, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import (
    _MergeAppendFiles,
    _new_manifest_list_file_name,
    _OverwriteFiles,
    _SnapshotProducer,
)
from pyiceberg.typedef import EMPTY_DICT

from instep.destinations.iceberg.commit.manifests import QuickManifest, QuickManifestList
from instep.destinations.iceberg.metadata.partition import place_of
from instep.destinations.iceberg.metadata.updates import FORMAT_VERSION, ref_is, set_branch


class Producer(_SnapshotProducer[Any]):
    """Manifests are looked into instead of left out by a filter of partitions, and partitions are counted instead of
    spelled: both go wrong for values that Python has no name for. What a commit writes is written on its own thread."""

    def _commit(self) -> UpdatesAndRequirements:
        """Write the manifests and their list; return the snapshot and the move of its branch."""
        now, branch = self._transaction.table_metadata, self._target_branch
        if now.format_version != FORMAT_VERSION or branch is None:
            return super()._commit()
        manifests, summary = self._manifests(), self._summary(self.snapshot_properties)
        place = self._transaction._table.location_provider().new_metadata_location(
            _new_manifest_list_file_name(snapshot_id=self._snapshot_id, attempt=0, commit_uuid=self.commit_uuid)
        )
        self._written_manifest_lists.append(place)
        output, parent, number = self._io.new_output(place), self._parent_snapshot_id, now.next_sequence_number()
        with QuickManifestList(output, self._snapshot_id, parent, number, self._compression) as written:
            written.add_manifests(manifests)
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": self._snapshot_id,
                "parent-snapshot-id": parent,
                "manifest-list": place,
                "sequence-number": number,
                "summary": summary,
                "schema-id": now.current_schema_id,
            }
        )
        head = now.refs[branch].snapshot_id if branch in now.refs else None
        updates = (AddSnapshotUpdate(snapshot=snapshot), set_branch(branch, self._snapshot_id))
        return updates, (ref_is(branch, head),)

    def _manifests(self) -> list[ManifestFile]:
        gone = by_spec(self._deleted_entries())  # before a file is written, as it may refuse
        added = [_added(self.snapshot_id, file) for file in self._added_data_files]
        written = [self._manifest(self._transaction.table_metadata.spec(), added)] if added else []
        written += [self._manifest(self.spec(spec), entries) for spec, entries in gone]
        return self._process_manifests([*written, *self._existing_manifests()])

    def _manifest(self, spec: PartitionSpec, entries: Iterable[ManifestEntry]) -> ManifestFile:
        with self.new_manifest_writer(spec) as writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        """Return the writer of a manifest of data files."""
        if self._transaction.table_metadata.format_version != FORMAT_VERSION:
            return super().new_manifest_writer(spec)
        return QuickManifest(spec, self.schema(), self.new_manifest_output(), self.snapshot_id, self._compression)

    def _build_delete_files_partition_predicate(self) -> None:
        return

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        return lambda manifest: True

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        metrics, changed = UpdateMetrics(), set[Any]()
        for file in self._added_data_files:
            metrics.add_file(file)
            changed.add(place_of(file))
        for file in self._deleted_data_files:
            metrics.remove_file(file)
            changed.add(place_of(file))
        partitions = sum(1 for _, values in changed if values)
        properties = {**metrics.to_dict(), **({"changed-partition-count": str(partitions)} if partitions else {})}
        parent = self._parent_snapshot_id
        before = self._transaction.table_metadata.snapshot_by_id(parent) if parent is not None else None
        summary = Summary(operation=self._operation, **properties, **snapshot_properties)
        return update_snapshot_summaries(summary, before.summary if before is not None else None)

    def deletes_written(
        self, added: Iterable[DataFile], old: Iterable[ManifestEntry], gone: Iterable[str]
    ) -> list[ManifestFile]:
        """Delete files in one manifest a spec: those that are added, those that stay, and those that go."""
        leaving = set(gone)
        entries = [*(_added(self.snapshot_id, file) for file in added), *old]
        return [self._of_one_spec(spec, of_spec, leaving) for spec, of_spec in by_spec(entries)]

    def _of_one_spec(self, spec: int, entries: Sequence[ManifestEntry], gone: set[str]) -> ManifestFile:
        with _DeletesWriter(self, self.spec(spec), self.new_manifest_output()) as writer:
            for entry in entries:
                if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == self.snapshot_id:
                    writer.add(entry)
                else:
                    (writer.delete if entry.data_file.file_path in gone else writer.existing)(entry)
        return writer.to_manifest_file()


class Append(Producer, _MergeAppendFiles):
    """Data files beside all others."""

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Merge manifests where there are enough of them; else no thread is asked whether there are."""
        data = [m for m in manifests if m.content == ManifestContent.DATA]
        is_small = (
            len(data) < self._min_count_to_merge and sum(m.manifest_length for m in data) <= self._target_size_bytes
        )
        if is_small and len({m.partition_spec_id for m in data}) <= 1:
            return [*data, *(m for m in manifests if m.content != ManifestContent.DATA)]
        return super()._process_manifests(manifests)


def by_spec(entries: Iterable[ManifestEntry]) -> list[tuple[int, list[ManifestEntry]]]:
    ordered = sorted(entries, key=lambda e: e.data_file.spec_id)
    return [(spec, list(group)) for spec, group in groupby(ordered, key=lambda e: e.data_file.spec_id)]


def _added(snapshot: int, file: DataFile) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot,
        sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )


class _DeletesWriter(QuickManifest):
    """pyiceberg writes manifests of data files only."""

    def __init__(self, producer: _SnapshotProducer[Any], spec: PartitionSpec, output: OutputFile) -> None:
        super().__init__(spec, producer.schema(), output, producer.snapshot_id, producer._compression)

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


@dataclass(frozen=True)
class Replaced:
    """Data files that go, and the delete files that are about none but them, or that `added` ones stand for."""

    data: Sequence[DataFile]
    deletes: Sequence[DataFile]
    added: Sequence[DataFile] = ()


class ReplaceFiles(Producer, _OverwriteFiles):
    """A snapshot with the added files and without those that are `replaced`; all others stay."""

    def __init__(self, staged: Transaction, table: Table, replaced: Replaced, summary: Mapping[str, str]) -> None:
        super().__init__(Operation.OVERWRITE, staged, table.io, snapshot_properties=dict(summary))
        self._deletes, self._added = {d.file_path: d for d in replaced.deletes}, replaced.added
        for file in replaced.data:
            self.delete_data_file(file)

    def _existing_manifests(self) -> list[ManifestFile]:
        manifests = super()._existing_manifests()
        data = [m for m in manifests if m.content == ManifestContent.DATA]
        deletes = [m for m in manifests if m.content == ManifestContent.DELETES]
        return [*data, *(self._without(deletes) if self._deletes or self._added else deletes)]

    def _without(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Return the delete files that come and those that stay, in one manifest a spec with those that go."""
        return self.deletes_written(
            self._added, (e for m in manifests for e in self.fetch_manifest_entry(m)), self._deletes
        )

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        with self._counting():
            return super()._summary(snapshot_properties)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Count delete files in the totals as well."""
        gone, self._deleted_data_files = self._deleted_data_files, {*self._deleted_data_files, *self._deletes.values()}
        new, self._added_data_files = self._added_data_files, [*self._added_data_files, *self._added]
        try:
            yield
        finally:
            self._deleted_data_files, self._added_data_files = gone, new
