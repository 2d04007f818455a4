"""A table as it was stays readable under another name: no file twice, and none lost while the copy stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from instep.destinations.base import Commit
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.evolve import undo as iceberg_undo
from instep.errors import Conflict, DestinationError
from instep.schema.changes.describe import TableRemoved
from instep.schema.planning.step import step
from lake import ID, ORDERS, REF, column, create, rows_of, stage, table

PLACE = ("shop", "orders__before_20260301")
ONE: dict[str, Any] = {"id": 1, "name": "ann", "amount": None}
TWO: dict[str, Any] = {"id": 2, "name": "bo", "amount": None}


@pytest.fixture
def lake(tmp_path: Path) -> IcebergDestination:
    made = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    create(made)
    return made


def loaded(lake: IcebergDestination, *rows: dict[str, Any], run: str = "run-1", fence: int = 1) -> None:
    lake.write.overwrite(REF, [stage(lake, REF, list(rows))], Commit(run, fence))


def kept(lake: IcebergDestination, fence: int = 1) -> int | None:
    return lake.lifecycle.clones.clone_table(REF, PLACE, Commit("run-2", fence))


def tags(lake: IcebergDestination, ref: tuple[str, str] = REF) -> list[str]:
    return [name for name in lake.lake.metadata([ref])[ref]["refs"] if name.startswith(iceberg_undo.COPY_TAG)]


def drop(lake: IcebergDestination, name: str = "run-9") -> None:
    lake.schema.execute(REF, [step(REF, TableRemoved(ORDERS))], None, Commit(name, 1))


def files(lake: IcebergDestination) -> list[Path]:
    return sorted(Path(lake.config.warehouse).rglob("*.parquet"))


def test_a_copy_keeps_its_rows_whatever_becomes_of_the_table(lake: IcebergDestination) -> None:
    loaded(lake, ONE, TWO)
    before = files(lake)
    assert kept(lake) == 2
    assert files(lake) == before
    loaded(lake, {**ONE, "name": "cy"})
    assert rows_of(lake, PLACE) == [(1, "ann", None), (2, "bo", None)]
    assert rows_of(lake) == [(1, "cy", None)]
    assert set(lake.schema.tables()) == {REF, PLACE}
    assert PLACE in lake.schema.foreign([PLACE])


def test_a_copy_of_the_same_snapshot_is_made_once(lake: IcebergDestination) -> None:
    loaded(lake, ONE)
    assert [kept(lake), kept(lake)] == [1, 1]
    assert len(tags(lake)) == 1


def test_what_has_no_rows_needs_no_copy(lake: IcebergDestination) -> None:
    assert kept(lake) is None
    lake.write.overwrite(REF, (), Commit("run-1", 1))
    assert kept(lake) is None
    assert lake.schema.tables() == [REF]


def test_a_name_that_is_taken_is_refused(lake: IcebergDestination) -> None:
    loaded(lake, ONE)
    kept(lake)
    loaded(lake, TWO)
    with pytest.raises(Conflict, match="is there already"):
        kept(lake)
    assert rows_of(lake, PLACE) == [(1, "ann", None)]


def test_purged_copies_leave_the_table_alone(lake: IcebergDestination) -> None:
    loaded(lake, ONE)
    kept(lake)
    for _ in range(2):
        lake.lifecycle.clones.purge_clone(PLACE, 1)
    assert (lake.schema.tables(), tags(lake)) == ([REF], [])
    assert rows_of(lake) == [(1, "ann", None)]
    assert list(Path(lake.config.warehouse).rglob("orders__before*/metadata/*.json")) == []


def test_only_copies_are_purged(lake: IcebergDestination) -> None:
    with pytest.raises(DestinationError, match="not a copy made by instep"):
        lake.lifecycle.clones.purge_clone(REF, 1)


def test_a_dropped_table_keeps_its_files_while_a_copy_stands(
    lake: IcebergDestination, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(lake, ONE)
    kept(lake)
    drop(lake)
    now = iceberg_undo.now_ms() + 8 * iceberg_undo.DAY_MS
    monkeypatch.setattr(iceberg_undo, "now_ms", lambda: now)
    assert iceberg_undo.purge(lake.lake) == []
    assert rows_of(lake, PLACE) == [(1, "ann", None)]
    lake.lifecycle.clones.purge_clone(PLACE, 1)
    assert len(iceberg_undo.purge(lake.lake)) == 1
    assert files(lake) == []


def test_a_copy_has_the_columns_of_its_time(lake: IcebergDestination) -> None:
    other = create(lake, table(ID, column("a", "int32"), name="items"))
    lake.write.append(other, [stage(lake, other, [{"id": 1, "a": 5}])], Commit("run-1", 1))
    assert lake.lifecycle.clones.clone_table(other, ("shop", "x"), Commit("run-2", 1)) == 1
    assert lake.write.read(("shop", "x"), ["a"]).read_all().to_pylist() == [{"a": 5}]
