"""Manifests and manifest lists: what pyiceberg's own writers make, from schemas that are made once."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pyiceberg.manifest
import pyiceberg.table.update.snapshot
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.catalog.sql import SqlCatalog
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
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _MergeAppendFiles
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from instep.destinations.iceberg.commit.manifests import QuickManifest, QuickManifestList
from instep.destinations.iceberg.commit.snapshots import Append

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


@pytest.mark.parametrize("parent", [None, 6])
@pytest.mark.parametrize("codec", ["deflate", "zstandard", "null"])
def test_a_list_of_manifests_is_pyicebergs(tmp_path: Path, codec: Any, parent: int | None) -> None:
    manifest = made(QuickManifest, tmp_path / "manifest", "a text", "deflate")
    output = PyArrowFileIO().new_output
    with QuickManifestList(output(f"{tmp_path}/ours"), 7, parent, 3, codec) as ours:
        ours.add_manifests([manifest])
    with write_manifest_list(2, output(f"{tmp_path}/theirs"), 7, parent, 3, codec) as theirs:
        theirs.add_manifests([manifest])
    assert read(tmp_path / "ours") == read(tmp_path / "theirs")
    assert 3 in read(tmp_path / "ours")[1][0]._data


@pytest.mark.parametrize("appends", [1, 3])
@pytest.mark.parametrize("merged_from", ["100", "2"])
def test_a_commit_is_pyicebergs(tmp_path: Path, appends: int, merged_from: str) -> None:
    """A snapshot, its list and its manifests, also where earlier ones are merged, as pyiceberg makes them."""
    ours, theirs = (committed(tmp_path / "lake", kind, appends, merged_from) for kind in (Append, _MergeAppendFiles))
    assert ours == theirs


def test_nothing_of_pyiceberg_is_replaced() -> None:
    """Our commits write manifests and lists of their own; others in the process get pyiceberg's."""
    assert pyiceberg.table.update.snapshot.write_manifest_list is pyiceberg.manifest.write_manifest_list
    assert pyiceberg.manifest.write_manifest_list.__module__ == "pyiceberg.manifest"


def committed(place: Path, kind: type[_MergeAppendFiles], appends: int, merged_from: str) -> list[Any]:
    """Append files one after the other to a new table; return what the last commit stages, its list and manifests."""
    shutil.rmtree(place, ignore_errors=True)  # the same place each time, for its name is in the files
    place.mkdir()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    catalog.create_namespace(("shop",))
    settings = {"commit.manifest.min-count-to-merge": merged_from}
    table = catalog.create_table(("shop", "orders"), SCHEMA, properties=settings)
    for number in range(appends):
        staged = table.transaction()
        producer: Any = kind(Operation.APPEND, staged, table.io, snapshot_properties={"run": str(number)})
        producer._snapshot_id, producer.commit_uuid = number + 1, uuid.UUID(int=number)
        producer.append_data_file(entry(number, Record(), 0).data_file)
        updates, needs = producer._commit()
        staged._updates, staged._requirements = tuple(updates), tuple(needs)
        table = staged.commit_transaction()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(table.io)
    entries = [read(Path(m.manifest_path.removeprefix("file:"))) for m in manifests]
    listed = read(Path(snapshot.manifest_list.removeprefix("file:")))
    staged_last = [json.loads(one.model_dump_json()) for one in (*updates, *needs)]
    for one in staged_last:
        one.get("snapshot", {}).pop("timestamp-ms", None)
    return [staged_last, listed, entries]


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
