# ruff: noqa: F811 - the imported `spark` is a fixture
"""Maintenance changes no row: small files become one, what only old versions need goes, and nothing else."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from delta_world import Warehouse

from instep.destinations.base import MaintenanceSpec
from instep.destinations.delta import change, maintain, retention
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.protocol.log import EVERY
from instep.errors import Conflict, DestinationError, Fenced
from instep.schema.changes.kinds import ColumnRemoved
from instep.schema.maintenance import DAY_MS, Maintenance
from instep.schema.planning.step import UndropColumn
from lake import ORDERS, REF, spark, stage, with_spark  # noqa: F401

EAGER = Maintenance(min_files=2, keep_snapshots=1, max_snapshot_age=0, orphan_age=0, target_file_size=1 << 20)
NAME = ORDERS.columns[1]


@pytest.fixture
def shop(tmp_path: Path) -> Warehouse:
    made = Warehouse(tmp_path, undo_days=0)
    for number in range(1, 5):
        made.append({"id": number, "name": f"n{number}"})
    time.sleep(0.01)
    return made


def work(shop: Warehouse, **more: Any) -> MaintenanceSpec:
    return replace(MaintenanceSpec(EAGER, "r-maintain", shop.fence), **more)


def test_small_files_become_one(shop: Warehouse) -> None:
    rows, state = shop.rows(), shop.to.schema.state(REF)
    assert shop.to.maintenance.due(REF, EAGER)
    would = shop.to.maintenance.maintain(REF, work(shop, dry_run=True))
    assert (would.files_before, would.files, would.rewritten, len(shop.files())) == (4, 1, 4, 4)
    done = shop.to.maintenance.maintain(REF, work(shop))
    assert (done.files_before, done.files, done.rewritten, len(shop.files())) == (4, 1, 4, 1)
    assert done.bytes == shop.held.snapshot.bytes
    assert shop.rows() == rows
    after = shop.to.schema.state(REF)
    assert replace(after, files=4, bytes=state.bytes, version=state.version) == state
    assert not shop.to.maintenance.due(REF, Maintenance())
    assert shop.to.maintenance.maintain(REF, work(shop)).rewritten == 0
    told = shop.to.maintenance.layout(REF)
    assert (told.files, told.deletes, told.maintained is not None) == (1, 0, True)
    assert shop.to.maintenance.latest_claim(REF) == shop.fence


def test_what_only_old_versions_need_goes(shop: Warehouse) -> None:
    first = shop.files()
    shop.overwrite({"id": 9})
    time.sleep(0.01)
    patient = work(shop, how=Maintenance(min_files=2))
    assert shop.to.maintenance.maintain(REF, patient).removed == 0
    done = shop.to.maintenance.maintain(REF, work(shop))
    assert (done.snapshots, done.removed) == (4, 4)
    assert [p for p in first if (shop.held.folder / p).exists()] == []
    assert shop.rows("id") == [(9,)]
    with pytest.raises(DestinationError, match="lacks"):
        shop.to.lifecycle.savepoints.rows_at(REF, shop.to.lifecycle.savepoints.savepoints(REF)[-1].id)


def test_commits_before_a_checkpoint_go(shop: Warehouse) -> None:
    while shop.held.snapshot.version < EVERY + 2:
        shop.append({"id": 100 + shop.fence})
    rows = shop.rows()
    shop.to.maintenance.maintain(REF, work(shop))
    assert shop.held.log.versions()[0] == EVERY
    assert shop.rows() == rows


def test_what_undo_needs_stays(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path)
    shop.append({"id": 1, "name": "a"})
    without = replace(ORDERS, columns=tuple(c for c in ORDERS.columns if c is not NAME))
    shop.change(without, ColumnRemoved(REF, NAME, 1))
    shop.append({"id": 2})
    shop.overwrite({"id": 1}, {"id": 2})
    shop.append({"id": 3})
    assert shop.to.maintenance.maintain(REF, work(shop)).removed == 0
    shop.change(ORDERS, UndropColumn(REF, NAME, NAME))
    assert shop.to.write.restore_dropped_values(REF, "name", shop.commit()) == 1
    assert shop.rows("id", "name") == [(1, "a"), (2, None), (3, None)]


def test_orphans_go_and_nothing_else(shop: Warehouse) -> None:
    staged = stage(shop.to, REF, [{"id": 9}])
    assert shop.to.maintenance.maintain(REF, work(shop, how=Maintenance(), dry_run=True)).orphans == 0, "it is young"
    time.sleep(0.01)
    assert shop.to.maintenance.maintain(REF, work(shop, live=0)).orphans == 0, "a run is alive"
    done = shop.to.maintenance.maintain(REF, work(shop))
    assert (done.orphans, done.orphan_bytes > 0) == (1, True)
    assert not Path(staged.path.removeprefix("file://")).exists()
    assert len(shop.rows()) == 4


def test_a_load_that_has_claimed_the_table_wins(shop: Warehouse) -> None:
    late = work(shop)
    shop.commit()
    with pytest.raises(Fenced):
        shop.to.maintenance.maintain(REF, late)
    assert len(shop.files()) == 4


def test_a_table_that_moves_is_looked_at_again(shop: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    land, moved = DeltaCommit.land, list[int]()

    def slow(change: DeltaCommit, operation: str, *rest: Any) -> int:
        if operation == "OPTIMIZE" and not moved:
            moved.append(1)
            held = shop.held
            held.log.put(held.snapshot.version + 1, [{"commitInfo": {"operation": "ANALYZE"}}])
        return land(change, operation, *rest)

    monkeypatch.setattr(DeltaCommit, "land", slow)
    assert shop.to.maintenance.maintain(REF, work(shop, deep=False)).files == 1
    own = list(shop.held.folder.joinpath("data").glob("*-rewrite-*"))
    assert len(own) == 1, "what was written for the commit that was refused is gone"


def test_a_stop_comes_between_steps(shop: Warehouse) -> None:
    shop.overwrite({"id": 9})
    assert shop.to.maintenance.maintain(REF, work(shop, go_on=lambda: False)).snapshots == 0


def test_a_commit_that_conflicts_leaves_no_file(shop: Warehouse) -> None:
    commit = shop.commit()
    shop.to.write.claim(REF, commit.fence + 1)
    with pytest.raises(Conflict):
        shop.to.write.overwrite(REF, [stage(shop.to, REF, [{"id": 1}])], commit)
    assert list(shop.held.folder.joinpath("data").glob("*-rewrite-*")) == []


def land_before(monkeypatch: pytest.MonkeyPatch, operation: str, work: Callable[[], object]) -> None:
    """Another process works just before a commit of that operation lands."""
    land, done = DeltaCommit.land, list[str]()

    def late(change: DeltaCommit, name: str, *rest: Any) -> int:
        if name == operation and not done:
            done.append(name)
            work()
        return land(change, name, *rest)

    monkeypatch.setattr(DeltaCommit, "land", late)


def test_a_restore_that_conflicts_leaves_the_files_of_the_version(
    shop: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.overwrite({"id": 1}, {"id": 2})
    shop.merge({"id": 1, "name": "x"})
    point, *_ = shop.to.lifecycle.savepoints.savepoints(REF)
    shop.overwrite({"id": 5})
    held = shop.held
    held.log.checkpoint(held.snapshot, maintain.now_ms() + 1)  # as long after: it names no file that was removed
    shop.forget()
    points = shop.to.lifecycle.savepoints
    commit, base = shop.commit("restore"), points.savepoints(REF)[0].id
    land_before(monkeypatch, "RESTORE", lambda: held.log.put(shop.held.snapshot.version + 1, [{"commitInfo": {}}]))
    with pytest.raises(Conflict):
        points.restore(REF, point.id, base, 2, commit)
    points.restore(REF, point.id, base, 2, commit)
    assert shop.rows("id", "name") == [(1, "x"), (2, None)]


@pytest.mark.parametrize("place", ["location", "quarantine"])
def test_what_others_write_while_dead_runs_are_cleared_stays(
    shop: Warehouse, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    folder = Path(getattr(shop.to.write.target(REF), place).removeprefix("file://"))
    folder.mkdir(exist_ok=True)
    dead, new = folder / "dead-00000-0-0-x.parquet", folder / "r9-rewrite-00000-0-0-x.parquet"
    dead.write_text("x")
    listed = retention.children

    def slow(uri: str, io: Any) -> list[str]:
        found = listed(uri, io)
        if uri == folder.as_uri():
            new.write_text("x")
        return found

    monkeypatch.setattr(retention, "children", slow)
    shop.to.lifecycle.remove_uncommitted_files(REF, {"dead": 1})
    assert (dead.exists(), new.exists()) == (False, True)


def test_a_file_that_came_back_and_went_again_counts_from_its_last_removal(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path, undo_days=0)
    shop.append({"id": 1})
    [first], point = shop.files(), shop.to.lifecycle.savepoints.savepoints(REF)[0]
    shop.overwrite({"id": 2})
    time.sleep(0.01)
    shop.to.lifecycle.savepoints.restore(
        REF, point.id, shop.to.lifecycle.savepoints.savepoints(REF)[0].id, 1, shop.commit()
    )
    time.sleep(0.01)
    shop.overwrite({"id": 3})
    two = replace(EAGER, keep_snapshots=2)
    assert shop.to.maintenance.maintain(REF, work(shop, how=two)).removed == 1
    assert (shop.held.folder / first).exists(), "the version before the last needs it"
    assert shop.to.lifecycle.savepoints.rows_at(REF, shop.to.lifecycle.savepoints.savepoints(REF)[1].id) == 1


KEEPS = [
    ("files", "delta.deletedFileRetentionDuration", "interval 1 week"),
    ("several units", "delta.deletedFileRetentionDuration", "INTERVAL 1 week 2 days"),
    ("versions", "delta.logRetentionDuration", "30 days"),
]


def set_property(shop: Warehouse, name: str, value: str) -> None:
    held = shop.held
    configuration = {**held.snapshot.metadata["configuration"], name: value}
    held.log.put(held.snapshot.version + 1, [{"metaData": {**held.snapshot.metadata, "configuration": configuration}}])


@pytest.mark.parametrize(("name", "value"), [c[1:] for c in KEEPS], ids=[c[0] for c in KEEPS])
def test_what_a_table_is_set_to_keep_stays(shop: Warehouse, name: str, value: str) -> None:
    set_property(shop, name, value)
    shop.overwrite({"id": 9})
    time.sleep(0.01)
    assert shop.to.maintenance.maintain(REF, work(shop)).removed == 0


@pytest.mark.parametrize("value", ["long", "1 week and 2 days", "1 month", "week", "interval"])
def test_what_is_no_interval_stops_the_deletion(shop: Warehouse, value: str) -> None:
    set_property(shop, "delta.deletedFileRetentionDuration", value)
    shop.overwrite({"id": 9})
    with pytest.raises(DestinationError, match=f"deletedFileRetentionDuration is '{value}', which is not an interval"):
        shop.to.maintenance.maintain(REF, work(shop))
    assert all((shop.held.folder / path).exists() for path in shop.held.snapshot.tombstones)


def test_files_stay_as_long_as_the_table_says_whatever_checkpoints_come(
    shop: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_property(shop, "delta.deletedFileRetentionDuration", "interval 12 weeks 6 days")
    [old, *_] = shop.files()
    shop.overwrite({"id": 9})
    held, day, real = shop.held, [0], change.now_ms
    staged = Path(stage(shop.to, REF, [{"id": 9}]).path.removeprefix("file://"))
    for module in (change, maintain):
        monkeypatch.setattr(module, "now_ms", lambda: real() + day[0] * DAY_MS)
    there = []
    for day[0] in (40, 89, 91):
        while shop.append({"id": day[0]}) and shop.held.snapshot.version % EVERY > 1:
            pass
        shop.to.maintenance.maintain(REF, work(shop))
        shop.forget()
        there.append(((held.folder / old).exists(), staged.exists()))
    assert there == [(True, True), (True, True), (False, False)]


def test_no_file_is_deleted_where_writers_have_to_know_more(shop: Warehouse) -> None:
    shop.overwrite({"id": 9})
    time.sleep(0.01)
    held = shop.held
    protocol = {**held.snapshot.protocol, "writerFeatures": ["columnMapping", "catalogManaged"]}
    held.log.put(held.snapshot.version + 1, [{"protocol": protocol}])
    with pytest.raises(DestinationError, match="catalogManaged"):
        shop.to.maintenance.maintain(REF, work(shop))
    assert all((held.folder / path).exists() for path in held.snapshot.tombstones)


@with_spark
def test_tasks_put_files_together_in_commits_of_their_own(
    shop: Warehouse, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain, "SPARK_BYTES", 0)
    monkeypatch.setattr(maintain, "COMMIT_BYTES", 1)
    rows, state, version = shop.rows(), shop.to.schema.state(REF), shop.held.snapshot.version
    size = max(int(f["size"]) for f in shop.held.files)
    pairs = replace(EAGER, target_file_size=2 * size + 1, keep_snapshots=100)
    stopped = shop.to.maintenance.maintain(REF, work(shop, how=pairs, session=lambda: spark, go_on=lambda: False))
    assert (stopped.files, stopped.rewritten, shop.held.snapshot.version) == (3, 2, version + 1)
    done = shop.to.maintenance.maintain(REF, work(shop, how=pairs, session=lambda: spark))
    assert (len(shop.files()), done.files, done.bytes) == (2, 2, shop.held.snapshot.bytes)
    assert shop.rows() == rows
    assert replace(shop.to.schema.state(REF), files=4, bytes=state.bytes, version=state.version) == state


def with_properties(shop: Warehouse, **properties: str) -> None:
    """What `ALTER TABLE ... SET TBLPROPERTIES` of another program commits."""
    metadata = shop.held.snapshot.metadata
    new = {
        **metadata,
        "configuration": {**metadata["configuration"], **{f"delta.{k}": v for k, v in properties.items()}},
    }
    assert shop.held.log.put(shop.held.snapshot.version + 1, [{"commitInfo": {}}, {"metaData": new}])


INDEXED = [
    ({"dataSkippingNumIndexedCols": "1"}, {"id"}),
    ({"dataSkippingNumIndexedCols": "0"}, set()),
    ({"dataSkippingNumIndexedCols": "-1"}, {"id", "name", "amount"}),
    ({"dataSkippingNumIndexedCols": "1", "dataSkippingStatsColumns": "`amount`, NAME"}, {"name", "amount"}),
]


@pytest.mark.parametrize(("properties", "names"), INDEXED)
def test_columns_have_the_statistics_that_somebody_wants(
    tmp_path: Path, properties: dict[str, str], names: set[str]
) -> None:
    shop = Warehouse(tmp_path)
    with_properties(shop, **properties)
    shop.append({"id": 1, "name": "a", "amount": Decimal("1.25")})
    stats = json.loads(shop.held.files[-1]["stats"])
    assert {n for n in stats["nullCount"] if not n.startswith("_instep")} == names


def test_files_are_put_together_to_the_size_that_somebody_has_set(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path)
    for number in range(12):
        shop.append({"id": number})
    for text, files in [("1k", 12), ("64 MB", 1)]:
        with_properties(shop, targetFileSize=text)
        shop.to.maintenance.maintain(REF, MaintenanceSpec(Maintenance(), "r", shop.commit().fence))
        assert len(shop.held.files) == files, text
    with_properties(shop, targetFileSize="large")
    with pytest.raises(DestinationError, match="not a size"):
        shop.to.maintenance.maintain(REF, MaintenanceSpec(Maintenance(), "r", shop.commit().fence))


def test_records_go_once_no_version_names_them(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path, undo_days=0)
    for number in range(6):
        shop.append({"id": number})
    place = shop.held.folder / "_instep"
    killed, fresh = place / f"{1:020}.json", place / f"{2:020}.json"
    for path in (killed, fresh):
        path.write_text("{}")
    for path in place.iterdir():
        if path != fresh:
            os.utime(path, (1, 1))
    time.sleep(0.01)
    before, rows = len([*place.iterdir()]), shop.rows()
    shop.to.maintenance.maintain(REF, work(shop))
    log = shop.held.log
    named = {f"{a['txn']['version']:020}.json" for v in log.versions() for a in log.actions(v) if "txn" in a}
    first = log.snapshot(log.versions()[0])
    assert first is not None
    named |= {f"{number:020}.json" for number in first.record_numbers.values()}
    assert {p.name for p in place.iterdir()} == {*named, fresh.name}, "one that is being written stays"
    assert len(named) < before
    assert shop.rows() == rows
    assert [p.id for p in shop.to.lifecycle.savepoints.savepoints(REF)]
