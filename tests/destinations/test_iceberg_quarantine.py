"""Rows found by key and changed in one commit: none twice, none lost, and only if nobody else has been there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instep.destinations.base import Commit, Merge, RowLookup, RowUpdate
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.errors import Conflict, DestinationError, Fenced
from lake import REF, column, create, rows_of, stage, table

COMPOSITE = table(column("id", "int64", key=2), column("part", "string", key=1), column("u", "uuid"))


@pytest.fixture
def lake(tmp_path: Path) -> IcebergDestination:
    """Ids 0 to 5 in two files; 1 was updated and 2 deleted since, so that both have position deletes."""
    destination = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    create(destination)
    destination.write.claim(REF, 1)
    for part in ((0, 1, 2), (3, 4, 5)):
        destination.write.append(
            REF, [stage(destination, REF, [{"id": i, "name": "old"} for i in part])], Commit("r-1", 1)
        )
    rows = [{"id": i, "name": "new" if i == 1 else "old"} for i in (0, 1, 3, 4, 5)]
    merge = Merge(("id",), complete=True, deletes="hard")
    destination.write.merge(None, REF, [stage(destination, REF, rows)], merge, Commit("r-1", 1, "c1"))  # type: ignore[arg-type]
    return destination


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def renamed(met: RowLookup, rows: list[int], *inserted: dict[str, Any]) -> RowUpdate:
    """The rows with another name, and new ones."""
    updated = met.rows.take(pa.array(rows, pa.int64()))
    at = updated.schema.get_field_index("name")
    names = pa.array(["amended"] * len(rows), updated.schema.field(at).type)
    new = pa.Table.from_pylist(list(inserted), schema=met.rows.schema)
    return RowUpdate(rows, updated.set_column(at, updated.schema.field(at), names), new)


def names(lake: IcebergDestination) -> dict[int, str]:
    return {i: n for i, n, _ in rows_of(lake)}


def test_the_rows_that_stand_are_met(lake: IcebergDestination) -> None:
    met = lake.write.lookup_rows(REF, keys(5, 2, 1, 9))
    found = dict(zip(met.numbers, met.rows.column("id").to_pylist(), strict=True))
    assert found == {0: 5, 2: 1}
    assert sorted(met.rows.column("name").to_pylist()) == ["new", "old"]


def test_rows_are_changed_and_added_and_the_others_stay(lake: IcebergDestination) -> None:
    met = lake.write.lookup_rows(REF, keys(5, 1))
    done = lake.write.update_rows(
        REF, met, renamed(met, [0, 1], {"id": 9, "name": "added"}), Commit("r-1", 1, "c1", "a1")
    )
    assert (done.updated, done.inserted) == (2, 1)
    assert names(lake) == {0: "old", 1: "amended", 3: "old", 4: "old", 5: "amended", 9: "added"}
    state = lake.schema.state(REF)
    assert state is not None
    assert (state.rows, state.cursor, state.accepted) == (6, "c1", "a1")
    assert len(rows_of(lake)) == 6


def test_only_new_rows_and_only_changed_ones(lake: IcebergDestination) -> None:
    met = lake.write.lookup_rows(REF, keys(1))
    lake.write.update_rows(REF, met, renamed(met, [], {"id": 9, "name": "added"}), Commit("r-1", 1))
    met = lake.write.lookup_rows(REF, keys(1))
    lake.write.update_rows(REF, met, renamed(met, [0]), Commit("r-1", 1))
    assert (names(lake)[1], names(lake)[9], len(rows_of(lake))) == ("amended", "added", 6)


def test_a_table_that_moved_is_left_alone(lake: IcebergDestination) -> None:
    met = lake.write.lookup_rows(REF, keys(1))
    lake.write.append(REF, [stage(lake, REF, [{"id": 7, "name": "x"}])], Commit("r-1", 1))
    with pytest.raises(Conflict, match="moved"):
        lake.write.update_rows(REF, met, renamed(met, [0]), Commit("r-1", 1))
    assert names(lake)[1] == "new"


def test_a_late_run_is_refused_and_leaves_no_file(lake: IcebergDestination) -> None:
    met = lake.write.lookup_rows(REF, keys(1))
    lake.write.claim(REF, 2)
    folder = Path(lake.write.target(REF).location.removeprefix("file://"))
    before = set(folder.rglob("*"))
    with pytest.raises(Fenced):
        lake.write.update_rows(REF, met, renamed(met, [0]), Commit("r-1", 1))
    assert (set(folder.rglob("*")), names(lake)[1]) == (before, "new")


def test_a_table_without_rows_is_told(tmp_path: Path) -> None:
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    create(lake)
    with pytest.raises(DestinationError, match="has not been loaded yet"):
        lake.write.lookup_rows(REF, keys(1))


def test_keys_of_several_columns(tmp_path: Path) -> None:
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    create(lake, COMPOSITE)
    lake.write.claim(REF, 1)
    rows = [{"id": i, "part": p, "u": bytes(16)} for i in (1, 2) for p in ("a", "b")]
    lake.write.append(REF, [stage(lake, REF, rows)], Commit("r-1", 1))
    met = lake.write.lookup_rows(REF, pa.table({"part": ["b", "a", "c"], "id": pa.array([1, 2, 1], pa.int64())}))
    assert sorted(met.numbers) == [0, 1]
