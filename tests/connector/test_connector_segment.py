"""The manifest of a segment: there whole or not at all, and the same after it was read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from instep.errors import StageError
from instep.schema.catalog.types import Decimal, Int, String, Unknown
from instep.sources.connector.config import ConnectorConfig
from instep.sources.connector.segment import (
    MANIFEST,
    OperationCounts,
    Segment,
    SegmentColumn,
    SegmentFile,
    SegmentTable,
    read_manifest,
    segment_folder,
    write_manifest,
)

ORDERS = SegmentTable(
    "", "orders", True, ("id",),
    (SegmentColumn("id", Int(64), True, True, False), SegmentColumn("amount", Decimal(12, 2), True, invalid_values=1),
     SegmentColumn("größe", String(), met=(Int(64), String()))),
    (SegmentFile("orders-1.parquet", 5, 1000),), upserts=3, updates=1, deletes=1, truncates=(2, 17),
)  # fmt: skip
EMPTY = SegmentTable("other", "nothing yet", False, ("id",), (SegmentColumn("id", Unknown(), key=True),))


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    folder = segment_folder(tmp_path, 1)
    folder.mkdir()
    return Segment(1, str(folder), {"cursor": "ü", "deep": [1, {"a": None}]}, False, (ORDERS, EMPTY), ("look out",))


def test_is_the_same_after_reading(segment: Segment) -> None:
    written = write_manifest(segment)
    assert read_manifest(segment.folder) == written
    assert replace(written, digest="") == segment
    assert written.counts == OperationCounts(3, 1, 1, 2, 1)
    assert written.table("orders") == ORDERS
    assert written.table("orders", "other") is None
    assert [str(c.stored) for c in ORDERS.columns] == ["int64", "string", "string"]


def test_digest_is_of_everything_said(segment: Segment) -> None:
    first = write_manifest(segment).digest
    assert write_manifest(segment).digest == first
    for other in (replace(segment, state=None), replace(segment, ends=True), replace(segment, tables=(ORDERS,))):
        assert write_manifest(other).digest != first


def test_a_state_is_not_shown(segment: Segment) -> None:
    assert "deep" not in repr(segment)
    assert "hunter2" not in repr(
        ConnectorConfig.resolved(path="x", configuration={"password": "hunter2"}, environment={"TOKEN": "hunter2"})
    )


@pytest.mark.parametrize("damage", ["missing", "torn", "changed", "other version"])
def test_a_manifest_that_is_not_whole_is_refused(segment: Segment, damage: str) -> None:
    write_manifest(segment)
    place = Path(segment.folder) / MANIFEST
    document = json.loads(place.read_text())
    match damage:
        case "missing":
            place.unlink()
        case "torn":
            place.write_text(place.read_text()[:-10])
        case "changed":
            place.write_text(json.dumps({**document, "ends": True}))
        case "other version":
            place.write_text(json.dumps({**document, "version": 2}))
    with pytest.raises(StageError, match=MANIFEST):
        read_manifest(segment.folder)


@pytest.mark.parametrize(
    ("patterns", "table", "lenient"),
    [((), "orders", False), (("orders",), "orders", True), (("sales.*",), "sales.orders", True), (("x",), "y", False)],
)
def test_tables_that_keep_invalid_values(patterns: tuple[str, ...], table: str, lenient: bool) -> None:
    assert ConnectorConfig.resolved(path="x", keep_invalid_values=patterns).is_lenient(table) is lenient
