"""The log itself: one writer a version, checkpoints that say what the commits said, what is refused."""

from __future__ import annotations

import datetime as dt
import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_world import Warehouse

from instep.destinations.base import Commit
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.files import statistics
from instep.destinations.delta.log import EVERY, DeltaLog, place_of
from instep.destinations.delta.shape import arrow_schema, first_fields, promoted
from instep.errors import Conflict, DestinationError, Fenced, IllegalChange
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import parse
from instep.stage.files.object_store import ObjectPath
from lake import ORDERS, REF, stage


@pytest.fixture
def shop(tmp_path: Path) -> Warehouse:
    made = Warehouse(tmp_path)
    made.append({"id": 1, "name": "a"})
    return made


def test_a_version_is_made_once(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    log.folder.mkdir()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: log.put(0, [{"commitInfo": {"operation": str(n)}}]), range(16)))
    assert sum(made) == 1
    [action] = log.actions(0)
    assert made[int(action["commitInfo"]["operation"])]
    assert [p.name for p in log.folder.iterdir()] == [f"{0:020}.json"]


def test_what_others_commit_meanwhile_is_never_lost(shop: Warehouse) -> None:
    held, commit = shop.held, shop.commit("late")
    with pytest.raises(Conflict, match="changed by somebody else") as first:
        DeltaCommit(held, held.record).land("WRITE", commit, shop.to.warehouse)
    assert not isinstance(first.value, Fenced), "the claim was its own"
    held = shop.held
    shop.commit("later")
    with pytest.raises(Fenced):
        DeltaCommit(held, held.record).land("WRITE", commit, shop.to.warehouse)


def test_a_checkpoint_says_what_the_commits_said(shop: Warehouse) -> None:
    for number in range(2, EVERY):
        shop.merge({"id": number % 5, "name": f"n{number}"})
    log = shop.held.log
    assert sorted(log.folder.glob("*.checkpoint.parquet")) != []
    told, rows = log.snapshot(), shop.rows()
    assert told is not None
    for path in [*log.folder.glob("*.checkpoint.parquet"), log.folder / "_last_checkpoint"]:
        path.unlink()
    assert log.snapshot() == told
    assert shop.rows() == rows


def test_readers_begin_at_a_checkpoint(shop: Warehouse) -> None:
    while shop.held.snapshot.version < EVERY:
        shop.append({"id": shop.fence})
    told, log = shop.held.snapshot, shop.held.log
    for version in range(EVERY):
        log.folder.joinpath(f"{version:020}.json").unlink()
    assert shop.held.snapshot == told
    assert log.versions()[0] == EVERY
    points = shop.to.lifecycle.savepoints.savepoints(REF)
    assert all(p.id >= EVERY for p in points)
    log.folder.joinpath(f"{EVERY:020}.checkpoint.parquet").write_text("broken")
    with pytest.raises(DestinationError, match="cannot be read"):
        shop.rows()


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("a feature", {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                                "readerFeatures": ["columnMapping", "deletionVectors"]}}, "deletionVectors"),
    ("a later protocol", {"protocol": {"minReaderVersion": 4, "minWriterVersion": 8}}, "does not read"),
    ("a file that is gone", {"add": {"path": "data/none.parquet", "size": 1, "stats": '{"numRecords":1}'}},
     "is not there"),
    ("a file with deleted rows", {"add": {"path": "data/x.parquet", "size": 1, "deletionVector": {}}},
     "has deletion vectors"),
]  # fmt: skip


@pytest.mark.parametrize(("action", "text"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_what_others_did_and_this_one_cannot_read(shop: Warehouse, action: dict[str, Any], text: str) -> None:
    held = shop.held
    held.log.put(held.snapshot.version + 1, [{"commitInfo": {}}, action])
    with pytest.raises(DestinationError, match=text):
        shop.rows()


WRITERS: list[tuple[str, dict[str, Any], str]] = [
    ("a feature", {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["columnMapping"],
                                "writerFeatures": ["columnMapping", "changeDataFeed"]}}, "changeDataFeed"),
    ("rows that must stay", {"metaData": {"configuration": {"delta.appendOnly": "true"}}}, "appendOnly"),
]  # fmt: skip


@pytest.mark.parametrize(("action", "text"), [c[1:] for c in WRITERS], ids=[c[0] for c in WRITERS])
def test_what_others_ask_of_writers_and_this_one_does_not_do(
    shop: Warehouse, action: dict[str, Any], text: str
) -> None:
    held = shop.held
    [(kind, said)] = action.items()
    whole = {**held.snapshot.metadata, **said} if kind == "metaData" else said
    held.log.put(held.snapshot.version + 1, [{"commitInfo": {}}, {kind: whole}])
    before = shop.held.snapshot.version
    with pytest.raises(DestinationError, match=text):
        shop.to.write.append(REF, [stage(shop.to, REF, [{"id": 7}])], Commit("r", shop.fence))
    assert (shop.held.snapshot.version, len(shop.rows())) == (before, 1)


BY_HAND: list[tuple[str, str, str, str]] = [
    ("a type", '"decimal(10,2)"', '"decimal(12,2)"', "decimal(12,2)"),
    ("a name", '"name":"amount"', '"name":"price"', "decimal(10,2)"),
]


@pytest.mark.parametrize(("old", "new", "kind"), [c[1:] for c in BY_HAND], ids=[c[0] for c in BY_HAND])
def test_an_edit_by_hand_is_seen(shop: Warehouse, old: str, new: str, kind: str) -> None:
    held = shop.held
    metadata = {**held.snapshot.metadata, "schemaString": held.snapshot.metadata["schemaString"].replace(old, new)}
    held.log.put(held.snapshot.version + 1, [{"commitInfo": {}}, {"metaData": metadata}])
    found = shop.to.schema.inspect([REF]).tables[0]
    assert found != ORDERS
    assert [(c.id, str(c.type)) for c in found.columns][2] == ("#amount", kind)
    assert len(shop.rows()) == 1


def test_a_hole_in_the_log_is_named(shop: Warehouse) -> None:
    shop.held.log.folder.joinpath(f"{1:020}.json").unlink()
    with pytest.raises(DestinationError, match="lacks version 1"):
        shop.rows()
    assert shop.to.schema.tables() == [REF], "whoever wants it is told"


def test_files_without_statistics_are_counted(shop: Warehouse) -> None:
    held = shop.held
    [file] = held.files
    bare = {k: v for k, v in file.items() if k != "stats"}
    held.log.put(held.snapshot.version + 1, [{"commitInfo": {}}, {"add": bare}])
    shop.append({"id": 2}, {"id": 3})
    assert shop.to.schema.state(REF).rows == 3


def test_a_file_that_is_lost_stops_a_merge(shop: Warehouse) -> None:
    (shop.held.folder / shop.files()[0]).unlink()
    with pytest.raises(DestinationError):
        shop.merge({"id": 1, "name": "b"})


def test_a_table_of_another_program_is_foreign(shop: Warehouse) -> None:
    held = shop.held
    log = DeltaLog(shop.path / "shop" / "theirs")
    log.folder.mkdir(parents=True)
    log.put(0, [{"protocol": held.snapshot.protocol}, {"metaData": held.snapshot.metadata}])
    assert shop.to.schema.tables() == [REF]
    assert list(shop.to.schema.foreign([("shop", "theirs"), REF])) == [("shop", "theirs")]


STATS: list[tuple[str, list[Any], Any, Any]] = [
    ("int32", [3, None, 1], 1, 3),
    ("decimal(10,2)", [Decimal("0.10"), Decimal("2.30")], 0.1, 2.3),
    ("decimal(38,10)", [Decimal("12345678901234567890.0000000001")], None, None),
    ("date", [dt.date(2026, 1, 2), dt.date(1, 1, 1)], "0001-01-01", "2026-01-02"),
    ("timestamp", [dt.datetime(2026, 1, 1, 0, 0, 0, 1001)], "2026-01-01T00:00:00.001", "2026-01-01T00:00:00.002"),
    ("timestamptz", [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z"),
    ("string", ["b", "a"], "a", "b"),
    ("string", ["x" * 40], None, None),
    ("float64", [1.0, float("nan")], None, None),
    ("boolean", [True], None, None),
    ("int32", [None], None, None),
]


@pytest.mark.parametrize(("kind", "values", "low", "high"), STATS)
def test_statistics_never_hide_a_value(tmp_path: Path, kind: str, values: list[Any], low: Any, high: Any) -> None:
    fields = first_fields(Table("s", "t", (Column("v", parse(kind)),)), iter(range(1, 9)))
    footers: list[Any] = []
    pq.write_table(pa.table({"v": values}, schema=arrow_schema(fields)), tmp_path / "f", metadata_collector=footers)
    told = json.loads(json.dumps(statistics(footers[0], fields)))
    assert (told["minValues"].get("v"), told["maxValues"].get("v")) == (low, high)
    assert (told["numRecords"], told["nullCount"]["v"]) == (len(values), values.count(None))


WIDER = [
    ("int8", "int64", True), ("int32", "int16", False), ("float32", "float64", True), ("int32", "float64", False),
    ("decimal(10,2)", "decimal(12,4)", True), ("decimal(10,2)", "decimal(11,4)", False), ("int32", "string", False),
    ("string(5)", "string", True), ("json", "string", True), ("array(int32)", "array(int64)", False),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "legal"), WIDER)
def test_only_what_readers_widen_is_widened(before: str, after: str, legal: bool) -> None:
    [made] = first_fields(Table("s", "t", (Column("v", parse(before)),)), iter(range(1, 9)))
    if legal:
        assert promoted(made, parse(after)).physical == made.physical
    else:
        with pytest.raises(IllegalChange):
            promoted(made, parse(after))


@pytest.mark.parametrize("path", ["file:///etc/passwd", "file:/etc/passwd", "FILE:///x", "hdfs://h/x", "http://h/x"])
def test_a_log_in_a_bucket_names_no_file_of_this_machine(path: str) -> None:
    table = ObjectPath("s3://b/t")
    with pytest.raises(DestinationError, match="in no bucket"):
        place_of(table, {"path": path})
    assert str(place_of(table, {"path": "at=1%3A2/a.parquet"})) == "s3://b/t/at=1:2/a.parquet"
    assert str(place_of(table, {"path": "s3://other/a%20b.parquet"})) == "s3://other/a b.parquet"
