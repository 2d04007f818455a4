"""What the steps of a plan leave in the folder: parked columns and tables, names, copies, earlier versions."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_duckdb_tables as same
from delta_world import Warehouse
from test_duckdb_tables import NAME, WITHOUT, undrop_table

from instep.destinations.base import Commit
from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.delta.warehouse import folder_name
from instep.errors import Conflict, ConnectError, DestinationError, Fenced
from instep.schema.changes.kinds import (
    ColumnAdded,
    ColumnRemoved,
    ColumnRenamed,
    TableRemoved,
    TableRenamed,
    TableReplaced,
)
from instep.schema.planning.step import step
from lake import ID, ORDERS, REF, column, create, rows_of, stage, table


@pytest.fixture
def shop(tmp_path: Path) -> Warehouse:
    made = Warehouse(tmp_path)
    made.append({"id": 1, "name": "a", "amount": 1}, {"id": 2, "name": "b", "amount": 2})
    return made


@pytest.fixture(autouse=True)
def _delta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same, "Warehouse", Warehouse)


test_of_two_dropped_columns_of_one_name = same.test_of_two_dropped_columns_of_one_name_the_later_one_returns
test_a_dropped_table_returns_unless_its_name_is_taken = same.test_a_dropped_table_returns_unless_its_name_is_taken
test_a_table_moves_into_another_schema_with_what_it_keeps = (
    same.test_a_table_moves_into_another_schema_with_what_it_keeps
)
test_a_refused_change_leaves_everything = same.test_a_refused_change_leaves_everything
test_a_rewritten_column_has_the_same_values = same.test_a_rewritten_column_has_the_same_values
test_a_copy_stays_as_it_was_and_is_nobody_elses = same.test_a_copy_stays_as_it_was_and_is_nobody_elses
test_an_empty_table_needs_no_copy = same.test_an_empty_table_needs_no_copy
test_a_table_is_added_once = same.test_a_table_is_added_once

LATER: list[tuple[str, Any, list[Any], int, list[Any]]] = [
    ("nothing", lambda s: None, [(1, "a"), (2, "b")], 0, []),
    ("updated", lambda s: s.merge({"id": 1, "amount": 9}), [(1, "a"), (2, "b")], 0, []),
    ("inserted", lambda s: s.merge({"id": 3}), [(1, "a"), (2, "b"), (3, None)], 1, []),
    ("appended", lambda s: s.append({"id": 3}), [(1, "a"), (2, "b"), (3, None)], 1, []),
    ("loaded anew", lambda s: s.overwrite({"id": 2}, {"id": 7}), [(2, None), (7, None)], 2, [(2, "b"), (7, None)]),
]


@pytest.mark.parametrize(("later", "rows", "written", "refilled"), [c[1:] for c in LATER], ids=[c[0] for c in LATER])
def test_a_dropped_column_keeps_its_values(
    shop: Warehouse, later: Any, rows: list[Any], written: int, refilled: list[Any]
) -> None:
    shop.change(WITHOUT, ColumnRemoved(REF, NAME, 1))
    assert shop.to.schema.inspect([REF]).get(REF) == WITHOUT
    later(shop)
    back = shop.to.lifecycle.undrop_report(REF, "name")
    assert (back.written, back.snapshot, back.why_not) == (written, True, "")
    undrop_table(shop)
    assert shop.to.schema.inspect([REF]).get(REF) == ORDERS
    assert shop.rows("id", "name") == rows
    assert shop.to.write.restore_dropped_values(REF, "name", shop.commit()) == bool(refilled)
    assert shop.rows("id", "name") == (refilled or rows)
    assert shop.to.write.restore_dropped_values(REF, "name", shop.commit()) == 0


def test_a_name_that_returns_gets_files_of_its_own(shop: Warehouse) -> None:
    shop.change(WITHOUT, ColumnRemoved(REF, NAME, 1))
    shop.change(ORDERS, ColumnAdded(REF, NAME, 1))
    assert shop.rows("id", "name") == [(1, None), (2, None)], "the old values are another column's"
    shop.append({"id": 3, "name": "c"})
    assert shop.rows("id", "name") == [(1, None), (2, None), (3, "c")]
    assert len({f.physical.casefold() for f in shop.held.layout}) == len(shop.held.layout)


def test_what_is_kept_goes_when_its_time_is_over(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path, undo_days=0)
    shop.append({"id": 1, "name": "a"})
    shop.change(WITHOUT, ColumnRemoved(REF, NAME, 1))
    other = replace(ORDERS, name="other", id="oid-other")
    create(shop.to, other, shop.commit())
    shop.to.schema.execute(other.ref, [step(other.ref, TableRemoved(other))], None, shop.commit())
    time.sleep(0.01)
    with pytest.raises(Fenced):
        shop.to.lifecycle.purge_expired([REF], shop.fence - 1)
    patient = DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=str(shop.path), undo_days=1))
    assert patient.lifecycle.purge_expired([REF], shop.fence) == []
    assert shop.to.lifecycle.purge_expired([REF], shop.fence) == ["shop.orders.name", "shop.other"]
    assert shop.to.lifecycle.undrop_report(REF, "name").why_not == "column 'name' is no longer retained"
    for attempt in (lambda: undrop_table(shop), lambda: shop.to.schema.undrop_table(other.ref, other, shop.commit())):
        with pytest.raises(DestinationError, match="no longer retained"):
            attempt()


NAMES = ["sales.2026", "a/b", "_hidden", ".dot", "per%cent", "ünï cödé", "a:b", "x" * 80]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_a_folder(tmp_path: Path, name: str) -> None:
    shop = Warehouse(tmp_path)
    wanted = replace(ORDERS, schema=name, name=name)
    create(shop.to, wanted)
    assert shop.to.schema.tables() == sorted([REF, (name, name)])
    assert shop.to.schema.inspect([(name, name)]).tables == (wanted,)
    assert not folder_name(name).startswith((".", "_"))
    assert "/" not in folder_name(name)


def test_tables_of_others_are_left_alone(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path, replace(ORDERS, name="mine", id="x"))
    shop.path.joinpath("shop/orders").mkdir()
    shop.path.joinpath("shop/orders/part.parquet").write_text("theirs")
    assert list(shop.to.schema.foreign([REF, ("shop", "mine")])) == [REF]
    for attempt in (
        lambda: shop.to.schema.inspect([REF]),
        lambda: shop.to.write.target(REF),
        lambda: shop.to.write.read(REF),
    ):
        with pytest.raises(DestinationError, match="is not ours"):
            attempt()
    with pytest.raises(Conflict, match="exists"):
        create(shop.to)
    moved = replace(ORDERS, id="x")
    ref = ("shop", "mine")
    with pytest.raises(Conflict, match="cannot be renamed"):
        shop.to.schema.execute(
            ref, [step(ref, TableRenamed(replace(moved, name="mine"), moved))], moved, Commit("r", 9)
        )
    assert shop.to.schema.tables() == [("shop", "mine")]


def test_another_object_store_is_refused() -> None:
    with pytest.raises(ConnectError, match="neither a folder nor in an object store"):
        DeltaDestination(DeltaConfig.resolved(name="lake", warehouse="hdfs://bucket/lake"))


def test_what_dead_runs_left_is_removed(shop: Warehouse) -> None:
    target = shop.to.write.target(REF)
    data, held = (Path(p.removeprefix("file://")) for p in (target.location, target.quarantine))
    for folder in (data / "r-dead", data / "r-dead-1", data / "r-alive"):
        folder.mkdir(parents=True)
        (folder / "x.parquet").write_text("")
    (data / "r-dead-rewrite-1.parquet").write_text("")
    for name in (".instep-1.tmp", ".theirs.tmp"):
        (shop.held.log.folder / name).write_text("")
    held.mkdir()
    for name in ("r-dead-0.parquet", "r2-0.parquet"):
        (held / name).write_text("")
    rows = shop.rows()
    shop.to.lifecycle.remove_uncommitted_files(REF, {"r-dead": 1, "r2": 2})
    assert sorted(p.name for p in data.iterdir() if p.is_dir()) == ["r-alive"]
    assert not (data / "r-dead-rewrite-1.parquet").exists()
    assert [p.name for p in held.iterdir()] == ["r2-0.parquet"], "r2 has committed its rows"
    assert [p.name for p in shop.held.log.folder.glob(".*")] == [".theirs.tmp"]
    assert shop.rows() == rows
    shop.to.lifecycle.remove_uncommitted_files(("shop", "nothing"), {"r": 1})


def test_an_earlier_version_is_put_back(shop: Warehouse) -> None:
    first = next(p for p in shop.to.lifecycle.savepoints.savepoints(REF) if p.current)
    shop.merge({"id": 1, "name": "changed"}, {"id": 3, "name": "c"})
    renamed = replace(NAME, name="title", alias="title")
    wanted = replace(ORDERS, columns=(ID, renamed, *ORDERS.columns[2:]))
    shop.change(wanted, ColumnRenamed(REF, NAME, renamed))
    now, *earlier = shop.to.lifecycle.savepoints.savepoints(REF)
    assert (now.current, now.rows, [p.rows for p in earlier], now.later) == (True, 3, [2], ())
    assert (earlier[0].id, earlier[0].cursor, earlier[0].why_not) == (first.id, '{"upper": 7}', "")
    assert shop.to.lifecycle.savepoints.rows_at(REF, first.id) == 2
    with pytest.raises(Conflict, match="has changed since"):
        shop.to.lifecycle.savepoints.restore(REF, first.id, first.id, 2, shop.commit())
    commit = shop.commit("back", cursor="c")
    for _ in range(2):
        shop.to.lifecycle.savepoints.restore(REF, first.id, now.id, 2, commit)
    assert shop.rows("id", "title") == [(1, "a"), (2, "b")]
    state = shop.to.schema.state(REF)
    assert (state.run, state.cursor, state.rows) == ("back", "c", 2)
    assert shop.to.lifecycle.savepoints.savepoints(REF)[0].current
    with pytest.raises(DestinationError, match="no longer has version 99"):
        shop.to.lifecycle.savepoints.rows_at(REF, 99)
    (shop.held.folder / shop.files()[0]).unlink()
    with pytest.raises(DestinationError, match="lacks 1 of its files"):
        shop.to.lifecycle.savepoints.rows_at(REF, first.id)


def test_rows_of_an_earlier_generation_do_not_come_back(shop: Warehouse) -> None:
    new = replace(table(column("id", "string", key=1), column("v", "int32")), id="oid-2", generation=1)
    shop.change(new, TableReplaced(ORDERS, new))
    assert all(p.why_not for p in shop.to.lifecycle.savepoints.savepoints(REF))
    shop.to.write.overwrite(REF, [stage(shop.to, REF, [{"id": "x", "v": 5}])], shop.commit())
    now, old = shop.to.lifecycle.savepoints.savepoints(REF)
    assert (now.why_not, old.why_not) == ("", "its rows are those of an earlier generation: another table of that name")
    assert rows_of(shop.to) == [("x", 5)]


def test_a_commit_says_whose_it_is(shop: Warehouse) -> None:
    actions = list(shop.held.log.actions(shop.held.snapshot.version))
    info = next(a["commitInfo"] for a in actions if "commitInfo" in a)
    said = json.loads(info["userMetadata"])
    assert (said["run"], said["fence"], said["cursor"], said["accepted"]) == ("r2", 2, '{"upper": 7}', "print")
    [number] = (a["txn"]["version"] for a in actions if "txn" in a)
    record = json.loads(shop.held.folder.joinpath("_instep", f"{number:020}.json").read_text())
    assert json.loads(record["instep"])["record"]["loaded"]["run"] == "r2"
