"""Data files in the place of others that hold the same rows: the commit, and the delete files that leave with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

from instep.destinations.iceberg.commit.producer import Producer


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
        found = super()._existing_manifests()
        data = [m for m in found if m.content == ManifestContent.DATA]
        deletes = [m for m in found if m.content == ManifestContent.DELETES]
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
        """The totals count delete files as well."""
        gone, self._deleted_data_files = self._deleted_data_files, {*self._deleted_data_files, *self._deletes.values()}
        new, self._added_data_files = self._added_data_files, [*self._added_data_files, *self._added]
        try:
            yield
        finally:
            self._deleted_data_files, self._added_data_files = gone, new
