"""Position deletes: one delete file a data file, always whole, and the commit that brings them with new rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import LongType, StringType

from instep.destinations.iceberg.commit.row_reader import Positions, RowReader
from instep.destinations.iceberg.commit.snapshots import Append

_PATH, _POS = 2147483546, 2147483545
_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(_PATH)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(_POS)}),
    ],
    metadata={"delete-type": "position"},
)


@dataclass(frozen=True)
class Deletes:
    """Delete files to add, and those that they stand for from now on."""

    added: Sequence[DataFile]
    replaced: Sequence[DataFile]


def delete_rows(rows: RowReader, places: Positions, stem: str) -> Iterator[tuple[DataFile, Sequence[DataFile]]]:
    """Write a delete file for each data file in `places`, lines of (file number, position); with it the delete files
    whose positions it repeats. Their names begin with `stem`."""
    for number in np.unique(places[:, 0]):
        path = rows.files[number].file_path
        replaced = [d for d in rows.deletes.get(path, ()) if is_of_one_file(d)]
        gone = places[places[:, 0] == number, 1]
        if replaced:
            gone = np.union1d(gone, rows.deleted[path])
        file = write_positions(rows.table.io, path, np.sort(gone), f"{stem}-deletes-{number}.parquet")
        yield delete_file(rows.files[number], file), replaced


def is_of_one_file(deletes: DataFile) -> bool:
    return path_of(deletes) is not None


def path_of(deletes: DataFile) -> str | None:
    """Return the data file that a delete file is about; None if it may be about several."""
    low, high = (deletes.lower_bounds or {}).get(_PATH), (deletes.upper_bounds or {}).get(_PATH)
    return low.decode() if low is not None and low == high else None


@dataclass(frozen=True)
class PositionFile:
    """A file of positions as it was written: where, how large, how many, the first and the last of them."""

    path: str
    bytes: int
    rows: int
    first: int
    last: int


def write_positions(io: FileIO, of: str, positions: npt.NDArray[np.int64], path: str) -> PositionFile:
    """Write the positions (ascending) of rows of the data file at `of` that are deleted."""
    columns = [pa.array([of]).take(pa.array(np.zeros(len(positions), dtype=np.int64))), pa.array(positions)]
    output = io.new_output(path)
    with output.create() as stream, pq.ParquetWriter(stream, _SCHEMA, compression="zstd") as writer:
        writer.write_table(pa.table(columns, schema=_SCHEMA))
    return PositionFile(path, len(io.new_input(path)), len(positions), int(positions[0]), int(positions[-1]))


def delete_file(of: DataFile, file: PositionFile) -> DataFile:
    """Return a delete file in the partition, and under the spec, of its data file."""
    path = to_bytes(StringType(), of.file_path)
    bounds = [{_PATH: path, _POS: to_bytes(LongType(), at)} for at in (file.first, file.last)]
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=of.partition,
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
        value_counts={_PATH: file.rows, _POS: file.rows},
        null_value_counts={_PATH: 0, _POS: 0},
        nan_value_counts={},
        column_sizes={},
        lower_bounds=bounds[0],
        upper_bounds=bounds[1],
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    deletes.spec_id = of.spec_id
    return deletes


class RowDelta(Append):
    """A snapshot that adds data files and delete files; what it replaces leaves with it."""

    def __init__(self, staged: Transaction, table: Table, deletes: Deletes, summary: Mapping[str, str]) -> None:
        operation = Operation.OVERWRITE if deletes.added else Operation.APPEND
        super().__init__(operation, staged, table.io, snapshot_properties=dict(summary))
        self._deletes = deletes

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        old = [m for m in manifests if m.content == ManifestContent.DELETES]
        data = super()._process_manifests([m for m in manifests if m.content == ManifestContent.DATA])
        return [*data, *(self._delete_manifests(old) if self._deletes.added else old)]

    def _delete_manifests(self, old: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Return all delete files in one manifest a spec: there is at most one a data file."""
        entries = (e for m in old for e in self.fetch_manifest_entry(m))
        return self.deletes_written(self._deletes.added, entries, (d.file_path for d in self._deletes.replaced))

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        data = self._added_data_files
        self._added_data_files = [*data, *self._deletes.added]
        self._deleted_data_files = set(self._deletes.replaced)
        try:
            return super()._summary(snapshot_properties)
        finally:
            self._added_data_files, self._deleted_data_files = data, set()
