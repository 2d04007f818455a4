"""Partition values of rows, against pyiceberg's own transforms; files that hold one partition each."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import types
from pyiceberg.partitioning import PartitionField, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform

from instep.errors import SchemaError, StageError
from instep.schema.catalog.layout import PartitionTerm, partition_term
from instep.stage.field_metadata import with_value
from instep.stage.files import partitioned
from instep.stage.files.partitioned import PartitionedWriter, only_partition, writer_for
from instep.stage.partition import Partitioning, by_partition, transformed
from instep.stage.spec import StageSpec, SystemColumns

TERMS = [
    ("region", PartitionTerm("identity", "region")),
    ("Day( placed at )", PartitionTerm("day", "placed at")),
    ("bucket(16, a,b)", PartitionTerm("bucket", "a,b", 16)),
    ("truncate(4,name)", PartitionTerm("truncate", "name", 4)),
    ("price(eur)", PartitionTerm("identity", "price(eur)")),
]


@pytest.mark.parametrize(("text", "term"), TERMS)
def test_terms(text: str, term: PartitionTerm) -> None:
    assert partition_term(text) == term
    assert partition_term(term.text) == term


@pytest.mark.parametrize("text", ["", " ", "day()", "bucket(id)", "bucket(0, id)", "bucket(-1, id)", "truncate(x, id)"])
def test_what_is_no_term(text: str) -> None:
    with pytest.raises(SchemaError, match="is nothing to partition by"):
        partition_term(text)


_INT, _LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
_DAYS = st.dates(date(1, 1, 1), date(9999, 12, 31))
_TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_DECIMAL = st.decimals(-9999999, 9999999, places=2, allow_nan=False)
KINDS: dict[str, tuple[pa.DataType, Any, st.SearchStrategy[Any], tuple[str, ...]]] = {
    "int": (pa.int32(), types.IntegerType(), _INT, ("identity", "bucket[7]", "truncate[10]")),
    "long": (pa.int64(), types.LongType(), _LONG, ("identity", "bucket[2147483647]", "truncate[1000]")),
    "boolean": (pa.bool_(), types.BooleanType(), st.booleans(), ("identity",)),
    "date": (pa.date32(), types.DateType(), _DAYS, ("identity", "bucket[16]", "year", "month", "day")),
    "timestamp": (
        pa.timestamp("us"), types.TimestampType(), _TIMES, ("identity", "bucket[16]", "year", "month", "day", "hour")),
    "timestamptz": (
        pa.timestamp("us", "UTC"), types.TimestamptzType(), _TIMES.map(lambda t: t.replace(tzinfo=UTC)),
        ("identity", "bucket[16]", "year", "month", "day", "hour")),
    "decimal": (pa.decimal128(38, 2), types.DecimalType(38, 2), _DECIMAL, ("identity", "bucket[5]", "truncate[50]")),
    "string": (pa.large_string(), types.StringType(), _TEXT, ("identity", "bucket[16]", "truncate[3]")),
    "binary": (pa.large_binary(), types.BinaryType(), st.binary(max_size=20), ("bucket[16]",)),
    "uuid": (pa.binary(16), types.UUIDType(), st.uuids().map(lambda u: u.bytes), ("bucket[16]",)),
}  # fmt: skip


def _expected(kind: Any, transform: str, values: list[Any]) -> list[Any]:
    """By pyiceberg, one value at a time, as its writers put them into metadata."""
    field = PartitionField(1, 1000, parse_transform(transform), "p")
    schema = Schema(types.NestedField(1, "c", kind))
    change = field.transform.transform(kind)
    stored = [v if isinstance(v, bytes) else partition_record_value(field, v, schema) for v in values]
    return [None if v is None else change(UUID(bytes=v) if isinstance(kind, types.UUIDType) else v) for v in stored]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_transforms_are_icebergs(kind: str, data: st.DataObject) -> None:
    arrow, iceberg, values, transforms = KINDS[kind]
    some = data.draw(st.lists(st.none() | values, max_size=20))
    for transform in transforms:
        name, _, width = transform.partition("[")
        expected = _expected(iceberg, transform, some)
        if name == "truncate" and kind in ("int", "long"):
            half = 2**31 if kind == "int" else 2**63  # below the least number it wraps, as it does in Java
            expected = [None if v is None else (v + half) % (2 * half) - half for v in expected]
        got = transformed(pa.array(some, arrow), name, int(width.rstrip("]") or 0)).to_pylist()
        assert got == expected, transform


def test_a_slice_of_a_column_is_transformed_by_itself() -> None:
    values = pa.array([None, 5, None, -7, 9], pa.int64()).slice(1, 3)
    assert transformed(values, "truncate", 4).to_pylist() == [4, None, -8]


def test_a_time_whose_hours_are_too_many_is_refused() -> None:
    with pytest.raises(StageError, match="too far from 1970"):
        transformed(pa.array([2**63 - 1], pa.timestamp("us")), "hour")


SCHEMA = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
                    pa.field("s", pa.string(), metadata={"PARQUET:field_id": "2"})])  # fmt: skip
BY = Partitioning(3, (PartitionTerm("truncate", "id", 10), None, PartitionTerm("identity", "s")))


def test_rows_are_told_apart_in_their_order() -> None:
    rows = pa.table([[1, 15, 2, 11, 3, 4], ["a", None, "a", None, "", None]], schema=SCHEMA)
    found = {p.values: t.column("id").to_pylist() for p, t in by_partition(rows, BY)}
    assert found == {(0, None, "a"): [1, 2], (10, None, None): [15, 11], (0, None, ""): [3], (0, None, None): [4]}
    assert {p.spec for p, _ in by_partition(rows, BY)} == {3}
    assert list(by_partition(rows.slice(0, 0), BY)) == []


def _spec(folder: Path, by: Partitioning = BY, **more: Any) -> StageSpec:
    return StageSpec("t", (), SystemColumns(), SCHEMA, str(folder), "", "run", 0, partition=by, **more)


def _batch(ids: range) -> pa.RecordBatch:
    texts = [None if i % 7 == 0 else f"{i % 3}/=%" for i in ids]
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array(texts, pa.string())], schema=SCHEMA)


SIZES = [("held whole", 1 << 18, 1 << 30), ("laid by", 50, 1 << 30), ("laid by and drained often", 50, 1_000)]


@pytest.mark.parametrize(("name", "group", "spill"), SIZES, ids=[s[0] for s in SIZES])
def test_a_file_holds_one_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, group: int, spill: int
) -> None:
    monkeypatch.setattr("instep.stage.files.writer.GROUP_ROWS", group)
    monkeypatch.setattr(partitioned, "SPILL_BYTES", spill)
    writer = PartitionedWriter(_spec(tmp_path), 0, 0)
    for start in range(0, 200, 30):
        writer.write(_batch(range(start, min(start + 30, 200))))
    files = writer.close()
    ids: Counter[int] = Counter()
    for file in files:
        rows = pq.read_table(file.path)
        [(partition, _)] = by_partition(rows.cast(SCHEMA), BY)
        assert (partition, file.rows) == (file.partition, len(rows))
        assert rows.column("id").to_pylist() == sorted(rows.column("id").to_pylist()), "rows keep their order"
        ids.update(rows.column("id").to_pylist())
    assert ids == Counter(range(200))
    if spill > 1_000:
        assert len({f.partition for f in files}) == len(files)


CONSTANT = pa.schema([SCHEMA.field("id"), with_value(SCHEMA.field("s"), "eu")])
SHARD = PartitionTerm("identity", "s")


@pytest.mark.parametrize(
    ("terms", "found"),
    [
        ((SHARD,), ("eu",)), ((SHARD, None), ("eu", None)), ((SHARD, PartitionTerm("identity", "id")), None),
        ((PartitionTerm("bucket", "s", 4),), None),
    ],
)  # fmt: skip
def test_rows_of_one_partition_go_into_files_as_they_come(tmp_path: Path, terms: Any, found: Any) -> None:
    by, rows = Partitioning(2, terms), pa.table([range(5), ["eu"] * 5], schema=CONSTANT)
    one = only_partition(CONSTANT, by)
    assert (one.values if one else None) == found
    writer = writer_for(replace(_spec(tmp_path, by), schema=CONSTANT), 0, 0)
    assert isinstance(writer, PartitionedWriter) == (found is None)
    for batch in rows.to_batches():
        writer.write(batch)
    assert {f.partition for f in writer.close()} == {partition for partition, _ in by_partition(rows, by)}


def test_one_file_is_open_however_many_partitions_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.stage.files.writer.GROUP_ROWS", 10)
    writer = PartitionedWriter(_spec(tmp_path, Partitioning(0, (PartitionTerm("identity", "id"),))), 0, 0)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for start in range(0, 60, 10):
        writer.write(_batch(range(start, start + 10)))
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2
    assert len(writer.close()) == 60
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_file_that_is_large_enough_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.stage.files.writer.GROUP_ROWS", 10)
    writer = PartitionedWriter(
        _spec(tmp_path, Partitioning(0, (PartitionTerm("bucket", "id", 1),)), file_bytes=1), 0, 0
    )
    writer.write(_batch(range(35)))
    writer.write(_batch(range(35)))
    assert sum(f.rows for f in writer.close()) == 70
    assert len(writer.files) == math.ceil(70 / 35)


def test_what_is_given_up_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.stage.files.writer.GROUP_ROWS", 10)
    writer = PartitionedWriter(_spec(tmp_path), 0, 0)
    writer.write(_batch(range(30)))
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_too_many_partitions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioned, "MAX_PARTITIONS", 20)
    writer = PartitionedWriter(_spec(tmp_path, Partitioning(0, (PartitionTerm("identity", "id"),))), 0, 0)
    writer.write(_batch(range(30)))
    with pytest.raises(StageError, match="t: its rows belong to more than 20 partitions") as error:
        writer.close()
    assert "bucket" in error.value.hint
    assert len(list(tmp_path.iterdir())) == 20
