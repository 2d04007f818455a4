"""Tables that appear together with their first rows: in one commit, with nothing to be seen before it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from instep.destinations.base import Commit
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.errors import Conflict
from instep.schema.changes.describe import ColumnAdded, TableRemoved, TableRenamed
from instep.schema.planning.step import step
from lake import ORDERS, REF, column, create, rows_of, stage, table

ROW = {"id": 1, "name": "a", "amount": None}
COMMIT = Commit("run-1", 1)


def lake_at(folder: Path) -> IcebergDestination:
    return IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(folder)))


def metadata_files(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob("*.metadata.json")]


def test_the_table_comes_with_its_rows_in_one_commit(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    with lake.lifecycle.deferred_create():
        create(lake)
        lake.write.claim(REF, 1)
        assert lake.schema.inspect([REF]).get(REF) == ORDERS
        assert lake.schema.state(REF) is None
        assert lake_at(tmp_path).schema.inspect([REF]).tables == ()
        lake.write.overwrite(REF, [stage(lake, REF, [ROW])], COMMIT)
        other = lake_at(tmp_path)
        assert other.schema.inspect([REF]).get(REF) == ORDERS
        assert rows_of(other) == [(1, "a", None)]
        state = other.schema.state(REF)
        assert state is not None
        assert (state.run, state.fence, state.rows) == ("run-1", 1, 1)
    assert len(metadata_files(tmp_path)) == 1


def test_a_table_without_rows_appears_at_the_end(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    with lake.lifecycle.deferred_create():
        create(lake)
        assert metadata_files(tmp_path) == []
    assert lake_at(tmp_path).schema.inspect([REF]).get(REF) == ORDERS
    assert rows_of(lake_at(tmp_path)) == []


def test_what_changes_before_the_rows_come_is_in_the_table(tmp_path: Path) -> None:
    lake, note = lake_at(tmp_path), column("note", "string")
    wanted = replace(ORDERS, columns=(*ORDERS.columns, note))
    with lake.lifecycle.deferred_create():
        create(lake)
        lake.schema.execute(REF, [step(REF, ColumnAdded(REF, note, 3))], wanted, COMMIT)
        lake.write.overwrite(REF, [stage(lake, REF, [{**ROW, "note": "n"}])], COMMIT)
    assert rows_of(lake_at(tmp_path)) == [(1, "a", None, "n")]


def test_a_table_that_is_renamed_first_is_there_under_its_new_name(tmp_path: Path) -> None:
    lake, sales = lake_at(tmp_path), replace(ORDERS, name="sales")
    with lake.lifecycle.deferred_create():
        create(lake)
        lake.schema.execute(REF, [step(REF, TableRenamed(ORDERS, sales))], sales, COMMIT)
        lake.write.overwrite(sales.ref, [stage(lake, sales.ref, [ROW])], COMMIT)
    there = lake_at(tmp_path)
    assert there.schema.tables() == [sales.ref]
    assert rows_of(there, sales.ref) == [(1, "a", None)]


def dies(tmp_path: Path) -> None:
    """A process that has staged rows of a new table, and does no more."""
    lake = lake_at(tmp_path)
    with suppress(KeyboardInterrupt), lake.lifecycle.deferred_create():
        create(lake)
        stage(lake, REF, [ROW])
        raise KeyboardInterrupt


def folders(tmp_path: Path) -> list[str]:
    return sorted(p.name for p in (tmp_path / REF[0]).iterdir())


def test_nothing_is_there_after_an_error_and_its_folder_goes_with_the_next_birth(tmp_path: Path) -> None:
    others = table(column("id", "int64", key=1), name="others")
    dies(tmp_path)
    assert lake_at(tmp_path).schema.tables() == []
    begun = folders(tmp_path)
    assert len(begun) == 1
    lake = lake_at(tmp_path)
    with lake.lifecycle.deferred_create():
        create(lake)
        create(lake, others)
        lake.write.overwrite(others.ref, [stage(lake, others.ref, [{"id": 7}])], COMMIT)
        assert begun[0] in folders(tmp_path)
        lake.write.overwrite(REF, [stage(lake, REF, [ROW])], Commit("run-2", 2))
    assert begun[0] not in folders(tmp_path)
    assert len(folders(tmp_path)) == 2
    assert rows_of(lake_at(tmp_path)) == [(1, "a", None)]
    assert rows_of(lake_at(tmp_path), others.ref) == [(7,)]


def test_what_died_beside_the_run_that_made_the_table_is_removed(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    with lake.lifecycle.deferred_create():
        create(lake)
        file = stage(lake, REF, [ROW])
        made = folders(tmp_path)
        dies(tmp_path)
        lake.write.overwrite(REF, [file], COMMIT)
    begun = {p.name for p in tmp_path.glob(f"{REF[0]}/*/data/*") if p.parent.parent.name not in made}
    assert len(begun) == 1
    for runs, left in (({"another": 2}, 2), (dict.fromkeys(begun, 3), 1)):
        lake_at(tmp_path).lifecycle.remove_uncommitted_files(REF, runs)
        assert len(folders(tmp_path)) == left
    assert folders(tmp_path) == made
    assert rows_of(lake_at(tmp_path)) == [(1, "a", None)]


def test_removing_uncommitted_files_looks_at_no_other_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the table itself, in which only a dead run may have staged, is none that was left."""
    lake = lake_at(tmp_path)
    with lake.lifecycle.deferred_create():
        create(lake)
        lake.write.overwrite(REF, [stage(lake, REF, [ROW])], COMMIT)
    monkeypatch.setattr(Lake, "refs", lambda *_: pytest.fail("all tables are looked at"))
    staged = {p.name for p in tmp_path.glob(f"{REF[0]}/*/data/*")}
    lake_at(tmp_path).lifecycle.remove_uncommitted_files(REF, dict.fromkeys(staged, 1))
    monkeypatch.undo()
    assert rows_of(lake_at(tmp_path)) == [(1, "a", None)]


def test_who_comes_late_finds_the_table_made_and_leaves_it_alone(tmp_path: Path) -> None:
    late, lake = lake_at(tmp_path), lake_at(tmp_path)
    with late.lifecycle.deferred_create():
        create(late)
        file = stage(late, REF, [{**ROW, "name": "late"}])
        with lake.lifecycle.deferred_create():
            create(lake, commit=Commit("run-2", 2))
            lake.write.overwrite(REF, [stage(lake, REF, [ROW])], Commit("run-2", 2))
        with pytest.raises(Conflict):
            late.write.overwrite(REF, [file], COMMIT)
    assert rows_of(lake_at(tmp_path)) == [(1, "a", None)]
    assert rows_of(late) == [(1, "a", None)]


def test_a_dropped_table_keeps_its_folder_when_its_name_comes_back(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    with lake.lifecycle.deferred_create():
        create(lake)
        lake.write.overwrite(REF, [stage(lake, REF, [ROW])], COMMIT)
    lake.schema.execute(REF, [step(REF, TableRemoved(ORDERS))], None, COMMIT)
    anew = replace(ORDERS, id="oid-other")
    with lake.lifecycle.deferred_create():
        create(lake, anew, Commit("run-2", 2))
        lake.write.overwrite(REF, [stage(lake, REF, [{**ROW, "id": 2}])], Commit("run-2", 2))
    assert len(folders(tmp_path)) == 2
    assert rows_of(lake_at(tmp_path)) == [(2, "a", None)]
