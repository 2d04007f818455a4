"""The log itself: one writer a version, checkpoints that say what the commits said, what is refused."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_world import Warehouse
from deltalake import DeltaTable, write_deltalake

from instep.destinations.base import Commit
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.destination import DeltaDestination
from instep.destinations.delta.files import statistics
from instep.destinations.delta.protocol import checkpoint as module
from instep.destinations.delta.protocol.log import EVERY, DeltaLog, SnapshotCache, place_of
from instep.destinations.delta.protocol.snapshot import NOTHING, FileActions
from instep.destinations.delta.shape import arrow_schema, first_fields, promoted
from instep.destinations.delta.warehouse import now_ms
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
    shop.forget()
    assert shop.held.snapshot == told
    assert shop.rows() == rows


def test_readers_begin_at_a_checkpoint(shop: Warehouse) -> None:
    while shop.held.snapshot.version < EVERY:
        shop.append({"id": shop.fence})
    told, log = shop.held.snapshot, shop.held.log
    for version in range(EVERY):
        log.folder.joinpath(f"{version:020}.json").unlink()
    shop.forget()
    assert shop.held.snapshot == told
    assert log.versions()[0] == EVERY
    points = shop.to.lifecycle.savepoints.savepoints(REF)
    assert all(p.id >= EVERY for p in points)
    log.folder.joinpath(f"{EVERY:020}.checkpoint.parquet").write_text("broken")
    shop.forget()
    with pytest.raises(DestinationError, match="cannot be read"):
        shop.rows()


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("a feature", {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                                "readerFeatures": ["columnMapping", "mystery"]}}, "mystery"),
    ("a later protocol", {"protocol": {"minReaderVersion": 4, "minWriterVersion": 8}}, "does not read"),
    ("a file that is gone", {"add": {"path": "data/none.parquet", "size": 1, "stats": '{"numRecords":1}'}},
     "is not there"),
    ("a lost deletion vector", {"add": {"path": "data/x.parquet", "size": 1, "deletionVector": {
        "storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40,
        "cardinality": 6}}}, "cannot be read"),
    ("a tag that is a number", {"add": {"path": "data/x.parquet", "size": 1, "tags": {"a": 1}}}, "cannot be read"),
    ("a file without a path", {"add": {"size": 1}}, "cannot be read"),
    ("a property that is a number", {"metaData": {"id": "x", "schemaString": "{}", "configuration": {"mine": 1}}},
     "no texts: mine"),
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
    shop.forget()
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
    ("string", ["x" * 40, "y" * 40], "x" * 32, "y" * 32 + "\U0010ffff"),
    ("string", ["x" * 32 + "\U0010ffff!"], None, None),
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


def test_a_log_is_read_once_and_then_its_new_commits(shop: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    while shop.held.snapshot.version < EVERY:
        shop.append({"id": shop.fence})
    read, whole = list[Path](), list[int]()
    commits, checkpoint = DeltaLog._read, module.read
    monkeypatch.setattr(DeltaLog, "_read", staticmethod(lambda path: read.append(path) or commits(path)))
    monkeypatch.setattr(module, "read", lambda version, paths: whole.append(version) or checkpoint(version, paths))
    shop.forget()
    for number in range(3):
        shop.to.schema.state(REF)
        shop.to.schema.sizes([REF])
        shop.merge({"id": number, "name": "new"})
        shop.rows()
    assert whole == [EVERY]
    assert len(read) == len(set(read)), "no commit twice"


def test_a_table_in_the_place_of_another_is_not_taken_for_it(shop: Warehouse, tmp_path: Path) -> None:
    other = Warehouse(tmp_path / "other")
    other.append({"id": 7}, {"id": 8})
    assert (shop.held.snapshot.version, len(shop.rows())) == (other.held.snapshot.version, 1)
    shutil.rmtree(shop.held.folder)
    shutil.copytree(other.held.folder, shop.path / REF[0] / REF[1])
    assert shop.rows("id") == [(7,), (8,)]


def test_a_commit_between_others_that_is_gone_is_a_hole(shop: Warehouse) -> None:
    held = shop.held
    other = DeltaDestination(shop.to.config)
    for fence in (50, 51):
        other.write.claim(REF, fence)
    held.log.path(held.snapshot.version + 1).unlink()
    with pytest.raises(DestinationError, match=f"lacks version {held.snapshot.version + 1}"):
        shop.rows()


@pytest.mark.parametrize("sidecar", [False, True], ids=["one file", "sidecars"])
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_checkpoints_of_the_second_form_are_read(shop: Warehouse, form: str, sidecar: bool) -> None:
    for number in range(3):
        shop.merge({"id": number})
    told, log = shop.held.snapshot, shop.held.log
    tagged = {**next(told.files.each()), "tags": {"by": "other"}, "path": "data/more.parquet"}
    whole, _ = module.content(told.after(told.version, [{"add": tagged}]))
    lines = pq.read_table(pa.BufferReader(whole)).to_pylist(maps_as_pydicts="strict")
    actions = [{k: v for k, v in line.items() if v is not None} for line in lines]
    rest = [a for a in actions if not sidecar or ("add" not in a and "remove" not in a)]
    if sidecar:
        log.folder.joinpath("_sidecars").mkdir()
        log.folder.joinpath("_sidecars", "s.parquet").write_bytes(whole)
        rest.append({"sidecar": {"path": "s.parquet", "sizeInBytes": len(whole), "modificationTime": 1}})
    rest.append({"checkpointMetadata": {"version": told.version}})
    path = log.folder / f"{told.version:020}.checkpoint.{uuid.uuid4()}.{form}"
    if form == "json":
        path.write_text("".join(json.dumps(a) + "\n" for a in rest))
    else:
        more = {"sidecar": pa.struct({"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64()})}
        schema = pa.schema([*module.SCHEMA, *more.items()])
        pq.write_table(pa.Table.from_pylist(rest, schema=schema), path)
    for version in range(told.version + 1):
        log.path(version).unlink()
    found = DeltaLog(log.table).snapshot()
    assert found is not None
    assert found.files["data/more.parquet"]["tags"] == {"by": "other"}
    rest_of = {p: f for p, f in found.files.items() if p != "data/more.parquet"}
    assert (rest_of, found.tombstones, found.domains) == (dict(told.files), told.tombstones, told.domains)


def test_commits_that_were_put_into_one_file_are_read_from_it(tmp_path: Path) -> None:
    for number in range(4):
        write_deltalake(tmp_path, pa.table({"id": [number]}), mode="append" if number % 2 else "overwrite")
    told = DeltaLog(tmp_path).snapshot()
    DeltaTable(tmp_path).compact_logs(1, 3)
    log = DeltaLog(tmp_path)
    for version in (1, 2):
        log.path(version).unlink()
    found = log.snapshot()
    assert told is not None
    assert found is not None
    assert dict(found.files) == dict(told.files)


def test_what_other_writers_say_of_files_survives_a_checkpoint(shop: Warehouse) -> None:
    held = shop.held
    [file] = held.files
    theirs = {**file, "tags": {"ZCUBE_ID": "1"}, "baseRowId": 7, "defaultRowCommitVersion": 2}
    txn = {"appId": "stream", "version": 3, "lastUpdated": 1_700_000_000_000}
    held.log.put(held.snapshot.version + 1, [{"commitInfo": {}}, {"add": theirs}, {"txn": txn}])
    snapshot = shop.held.snapshot
    shop.held.log.checkpoint(snapshot, 0)
    shop.forget()
    found = shop.held.snapshot
    assert (dict(found.files[file["path"]]), found.txns["stream"]) == (theirs, txn)


def test_only_loads_that_read_no_row_call_themselves_blind(shop: Warehouse) -> None:
    def blind() -> bool:
        held = shop.held
        return bool(next(a["commitInfo"]["isBlindAppend"] for a in held.log.actions(held.snapshot.version)))

    shop.append({"id": 2})
    assert blind()
    shop.merge({"id": 3})
    assert not blind(), "only new rows, but the table was read for them"


def set_property(shop: Warehouse, name: str, value: str) -> None:
    held = shop.held
    configuration = {**held.snapshot.metadata["configuration"], name: value}
    held.log.put(held.snapshot.version + 1, [{"metaData": {**held.snapshot.metadata, "configuration": configuration}}])


@pytest.mark.parametrize(
    ("name", "value"),
    [("checkpointInterval", "0"), ("checkpointInterval", "often"), ("deletedFileRetentionDuration", "long")],
)
def test_a_run_does_not_fail_once_its_commit_is_there(shop: Warehouse, name: str, value: str) -> None:
    set_property(shop, f"delta.{name}", value)
    last = shop.held.snapshot.version // EVERY * EVERY + EVERY
    while shop.held.snapshot.version <= last:
        shop.append({"id": shop.fence})
    assert len(shop.rows()) == shop.to.schema.state(REF).rows


def test_a_process_remembers_what_a_reader_finds_at_the_checkpoint(shop: Warehouse) -> None:
    for number in range(3):
        shop.overwrite({"id": number})
    held = shop.held
    assert len(held.snapshot.tombstones) == 3
    held.log.checkpoint(held.snapshot, now_ms() + 1)
    mine = shop.held.snapshot
    shop.forget()
    assert [list(mine.tombstones), list(mine.files)] == [[], list(shop.held.snapshot.files)]


def removed(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"remove": {"path": f"{first + n}", "deletionTimestamp": 1, "dataChange": True}} for n in range(count)]


def test_snapshots_that_are_remembered_are_few_by_all_they_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SnapshotCache, "FILES", 25)
    cache = SnapshotCache()
    for number in range(5):
        cache.put(f"t{number}", NOTHING.after(1, removed(10)), number)
    assert [n for n in range(5) if cache.get(f"t{n}")] == [3, 4]


def test_many_small_commits_are_few_pieces() -> None:
    found, now = [], NOTHING
    for number in range(200):
        add = {"path": f"{number}", "size": number, "modificationTime": 1, "dataChange": True}
        now = now.after(number, [{"add": add}, *removed(1, 1_000 + number)])
        found += [f._table.column("key").num_chunks for f in (now.files, now.tombstones)]
    assert max(found) < 70
    assert [f["size"] for f in now.files.each()] == list(range(200))
    assert sorted(f["size"] for f in now.files.of_paths(["7", "150"])) == [7, 150]
    with pytest.raises(KeyError, match="200"):
        list(now.files.of_paths(["7", "200"]))


def test_the_files_of_a_table_are_taken_in_one_pass(shop: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        shop.append({"id": number})
    taken, at = list[int](), FileActions._at
    monkeypatch.setattr(FileActions, "_at", staticmethod(lambda rows: taken.append(1) or at(rows)))
    state = shop.held
    assert [f["path"] for f in state.files] == state.paths
    assert len(taken) <= state.own._table.column("key").num_chunks


def test_a_table_says_when_it_gets_a_checkpoint(shop: Warehouse) -> None:
    held = shop.held
    set_property(shop, "delta.checkpointInterval", "3")
    for number in range(6):
        shop.append({"id": number})
    found = [int(p.name[:20]) for p in held.log.folder.glob("*.checkpoint.parquet")]
    assert found
    assert all(version % 3 == 0 for version in found)
