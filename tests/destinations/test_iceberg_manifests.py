"""Manifests and manifest lists: what pyiceberg's own writers make, from schemas that are made once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from instep.destinations.iceberg.commit.manifests import QuickManifest, snapshot

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "country", StringType(), required=False),
    NestedField(3, "at", TimestamptzType(), required=False),
)
BY_COUNTRY = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "country"), spec_id=1)
BY_DAY = PartitionSpec(PartitionField(3, 1000, DayTransform(), "at_day"), spec_id=2)
CASES = {
    "no partitions": (UNPARTITIONED_PARTITION_SPEC, Record()),
    "a text": (BY_COUNTRY, Record("de")),
    "no value": (BY_COUNTRY, Record(None)),
    "a day": (BY_DAY, Record(19_000)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("codec", ["deflate", "zstandard", "null"])
def test_a_manifest_is_pyicebergs(tmp_path: Path, case: str, codec: Any) -> None:
    ours, theirs = (written(kind, tmp_path / kind.__name__, case, codec) for kind in (QuickManifest, ManifestWriterV2))
    assert ours == theirs


def test_a_list_of_manifests_is_pyicebergs(tmp_path: Path) -> None:
    manifest = made(QuickManifest, tmp_path / "manifest", "a text", "deflate")
    found = []
    for name, write in (("ours", snapshot.write_manifest_list), ("theirs", write_manifest_list)):
        output = PyArrowFileIO().new_output(f"{tmp_path}/{name}")
        with write(2, output, 7, None, 3, "deflate") as writer:
            writer.add_manifests([manifest])
        found.append(read(tmp_path / name))
    assert found[0] == found[1]
    assert 3 in found[0][1][0]._data


def written(kind: type[ManifestWriterV2], place: Path, case: str, codec: Any) -> tuple[Any, list[Any]]:
    made(kind, place, case, codec)
    return read(place)


def made(kind: type[ManifestWriterV2], place: Path, case: str, codec: Any) -> ManifestFile:
    spec, partition = CASES[case]
    with kind(spec, SCHEMA, PyArrowFileIO().new_output(str(place)), 7, codec) as writer:
        for number in range(2):
            writer.add_entry(entry(number, partition, spec.spec_id))
    return writer.to_manifest_file()


def entry(number: int, partition: Record, spec: int) -> ManifestEntry:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"/lake/{number}.parquet",
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=number + 1,
        file_size_in_bytes=100,
        column_sizes={1: 10},
        value_counts={1: 1},
        null_value_counts={1: 0},
        nan_value_counts={},
        lower_bounds={1: b"a"},
        upper_bounds={1: b"b"},
        key_metadata=None,
        split_offsets=[4],
        equality_ids=None,
        sort_order_id=None,
    )
    file.spec_id = spec
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=7,
        sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )


def read(place: Path) -> tuple[Any, list[Any]]:
    """Return the file's metadata and records by the schema that it names."""
    with AvroFile[Record](PyArrowFileIO().new_input(str(place))) as file:
        return file.header.meta, list(file)
