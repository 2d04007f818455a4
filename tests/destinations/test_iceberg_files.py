"""Files that Spark would read as other values without a word are refused before they are adopted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from events.shows import shows
from instep.destinations.base import Commit
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.metadata.files import FIELD_ID, null_keys
from instep.destinations.rows import latest_time
from instep.errors import StageError
from lake import ID, PREFIX, REF, column, create, rows_of, stage, stage_table, table

KINDS = {"at": "timestamp", "zoned": "timestamptz", "price": "decimal(10,2)", "tags": "array(string)", "n": "int32"}
WIDE = table(ID, *(column(name, kind) for name, kind in KINDS.items()))


@pytest.fixture
def lake(tmp_path: Path) -> IcebergDestination:
    destination = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    create(destination, WIDE)
    return destination


def _retype(schema: pa.Schema, name: str, kind: pa.DataType) -> pa.Schema:
    at = schema.get_field_index(name)
    return schema.set(at, schema.field(at).with_type(kind))


def _swap_ids(schema: pa.Schema) -> pa.Schema:
    a, b = schema.get_field_index("at"), schema.get_field_index("n")
    first, second = schema.field(a), schema.field(b)
    return schema.set(a, first.with_metadata(second.metadata)).set(b, second.with_metadata(first.metadata))


WRONG: list[tuple[str, Any, str]] = [
    ("milliseconds", lambda s: _retype(s, "at", pa.timestamp("ms")), "'at' is timestamp\\[ms\\]"),
    ("nanoseconds", lambda s: _retype(s, "zoned", pa.timestamp("ns", tz="UTC")), "'zoned'"),
    ("another zone", lambda s: _retype(s, "zoned", pa.timestamp("us", tz="Europe/Paris")), "'zoned'"),
    ("no zone", lambda s: _retype(s, "zoned", pa.timestamp("us")), "'zoned'"),
    ("another scale", lambda s: _retype(s, "price", pa.decimal128(10, 4)), "'price'"),
    ("wider", lambda s: _retype(s, "n", pa.int64()), "'n'"),
    ("unsigned", lambda s: _retype(s, "n", pa.uint16()), "'n'"),
    ("swapped ids", _swap_ids, "field id"),
    ("no ids", lambda s: pa.schema([f.remove_metadata() for f in s]), "field id none"),
    ("another order", lambda s: pa.schema([*list(s)[1:], s.field(0)]), "columns"),
    ("a column more", lambda s: s.append(pa.field("more", pa.int32())), "columns"),
    ("other names", lambda s: s.set(1, s.field(1).with_name("At")), "columns"),
]


@pytest.mark.parametrize(("change", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
@shows(trap=3)
def test_a_file_of_another_schema_is_refused(lake: IcebergDestination, change: Any, said: str) -> None:
    schema = change(lake.write.target(REF).schema)
    file = stage_table(lake, REF, pa.Table.from_pylist([{"id": 1}], schema=schema))
    with pytest.raises(StageError, match=said):
        lake.write.append(REF, [file], Commit("run-1", 1))
    assert rows_of(lake) == []


def test_a_unit_that_arrow_hides_is_refused(lake: IcebergDestination) -> None:
    rows = pa.Table.from_pylist([{"id": 1}], schema=lake.write.target(REF).schema)
    for options in ({"coerce_timestamps": "ms"}, {"use_deprecated_int96_timestamps": True}):
        file = stage_table(lake, REF, rows, **options)
        with pytest.raises(StageError, match=r"microseconds|timestamp"):
            lake.write.append(REF, [file], Commit("run-1", 1))


def test_a_file_with_other_counts_or_no_footer_is_refused(lake: IcebergDestination) -> None:
    file = stage(lake, REF, [{"id": 1}])
    for odd in (replace(file, rows=2), replace(file, footer=b"not a footer"), replace(file, footer=b"")):
        with pytest.raises(StageError):
            lake.write.append(REF, [odd], Commit("run-1", 1))


def test_small_and_large_types_are_the_same(lake: IcebergDestination) -> None:
    schema = lake.write.target(REF).schema
    meta = schema.get_field_index(f"{PREFIX}meta")
    small = schema.set(meta, schema.field(meta).with_type(pa.string()))
    element = schema.field("tags").type.value_field
    small = _retype(small, "tags", pa.list_(element.with_type(pa.string())))
    file = stage_table(lake, REF, pa.Table.from_pylist([{"id": 1, "tags": ["x"]}], schema=small))
    lake.write.append(REF, [file, stage(lake, REF, [])], Commit("run-1", 1))
    assert [r[4] for r in rows_of(lake)] == [["x"]]


def test_the_files_bounds_are_those_of_the_footer(lake: IcebergDestination) -> None:
    lake.write.append(REF, [stage(lake, REF, [{"id": i} for i in range(7)])], Commit("run-1", 1))
    found = lake.lake.load(REF)
    assert found is not None
    [file] = found.inspect.files().to_pylist()
    assert (file["record_count"], file["readable_metrics"]["id"]["upper_bound"]) == (7, 6)


def test_footers_tell_null_keys_and_the_latest_time(lake: IcebergDestination) -> None:
    from datetime import UTC, datetime

    at = datetime(2026, 5, 1, tzinfo=UTC)
    files = [
        stage(lake, REF, [{"id": 1, "zoned": at}, {"id": None}]),
        stage(lake, REF, [{"id": None}]),
        stage(lake, REF, []),
    ]
    assert null_keys(files, ["id"]) == 2
    assert latest_time(files, "zoned") == int(at.timestamp() * 1_000_000)
    assert latest_time(files[2:], "zoned") is None


def test_the_targets_schema_carries_field_ids_and_no_comments(lake: IcebergDestination) -> None:
    schema = lake.write.target(REF).schema
    assert [f.metadata[FIELD_ID] for f in schema] == [str(i).encode() for i in range(1, len(schema) + 1)]
    assert all(set(f.metadata) == {FIELD_ID} for f in schema)
