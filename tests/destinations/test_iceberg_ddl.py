"""Schema steps on Iceberg: what is kept for undoing, what Iceberg itself ends up with, what waits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from events.shows import shows
from instep.destinations.base import Commit, Merge
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.metadata.updates import PROPERTIES
from instep.errors import DestinationError, IllegalChange, SchemaError
from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import ColumnAdded, ColumnRemoved, ColumnRenamed, TableRemoved, TableReplaced
from instep.schema.planning.step import RewriteColumn, step
from lake import ID, ORDERS, REF, SYSTEM, column, create, rows_of, stage, table


@pytest.fixture
def lake(tmp_path: Path) -> IcebergDestination:
    return IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))


def metadata(lake: IcebergDestination, ref: tuple[str, str] = REF) -> Any:
    return lake.lake.metadata([ref])[ref]


def run(lake: IcebergDestination, after: Table, *changes: Any, fence: int = 1) -> list[str]:
    steps = [step(REF, change) for change in changes]
    lake.schema.execute(REF, steps, after, Commit("run-2", fence))
    return [s.id for s in steps]


A, B = column("a", "int32"), column("b", "string")
AB = table(ID, A, B)


def test_a_table_is_made_as_merges_need_it(lake: IcebergDestination) -> None:
    create(lake)
    made = metadata(lake)
    assert made["format-version"] == 2
    assert PROPERTIES.items() <= made["properties"].items()
    assert made["properties"]["write.delete.granularity"] == "file"
    assert {p: made["properties"][f"instep.{p}"] for p in ("fence", "run")} == {"fence": "1", "run": "run-1"}
    assert set(json.loads(made["properties"]["instep.columns"])["2"]) == {"id", "type", "alias"}


def test_time_is_never_a_time_column(lake: IcebergDestination) -> None:
    create(lake, table(ID, column("t", "time"), column("ts", "array(time)")))
    assert '"time"' not in json.dumps(metadata(lake)["schemas"])


def test_a_snapshot_is_kept_before_a_drop(lake: IcebergDestination) -> None:
    create(lake, AB)
    lake.write.append(REF, [stage(lake, REF, [{"id": 1, "a": 7}])], Commit("run-1", 1))
    [at] = run(lake, table(ID, B), ColumnRemoved(REF, A, 1))
    made = metadata(lake)
    assert made["refs"][f"instep-undo-{at}"]["type"] == "tag"
    assert made["refs"][f"instep-undo-{at}"]["snapshot-id"] == made["refs"]["main"]["snapshot-id"]
    found = lake.lake.load(REF)
    assert found is not None
    old = found.scan(snapshot_id=made["refs"][f"instep-undo-{at}"]["snapshot-id"]).to_arrow()
    assert old["a"].to_pylist() == [7]


def test_a_drop_on_a_table_without_rows_needs_no_tag(lake: IcebergDestination) -> None:
    create(lake, AB)
    run(lake, table(ID, B), ColumnRemoved(REF, A, 1))
    assert metadata(lake)["refs"] == {}


def test_field_ids_are_never_used_twice(lake: IcebergDestination) -> None:
    create(lake, AB)
    run(lake, table(ID, B), ColumnRemoved(REF, A, 1))
    run(lake, table(ID, B, A), ColumnAdded(REF, A, 2))
    ids = [int(f.metadata[b"PARQUET:field_id"]) for f in lake.write.target(REF).schema]
    assert ids == [1, 3, 7, 4, 5, 6]


def test_the_schema_is_one_commit(lake: IcebergDestination) -> None:
    create(lake, AB)
    before = len(metadata(lake)["metadata-log"])
    renamed = replace(A, name="b", alias="b"), replace(B, name="a", alias="a")
    c = column("c", "date")
    run(lake, table(ID, *renamed, c), ColumnRenamed(REF, A, renamed[0]), ColumnRenamed(REF, B, renamed[1]),
        ColumnAdded(REF, c, 3))  # fmt: skip
    made = metadata(lake)
    assert (len(made["metadata-log"]), len(made["schemas"])) == (before + 1, 2)


@pytest.mark.parametrize(
    ("after", "change", "error"),
    [
        (table(ID, A, B, column("A", "int32")), ColumnAdded(REF, column("A", "int32"), 3), SchemaError),
        (table(ID, A, B, column("x.y", "int32")), ColumnAdded(REF, column("x.y", "int32"), 3), SchemaError),
        (table(ID, A), ColumnAdded(REF, column("c", "int32"), 3), DestinationError),
        (table(ID, A), ColumnRemoved(REF, column("nope", "int32"), 1), DestinationError),
        (table(ID, A, B, column("c", "int32")), ColumnRenamed(REF, A, A), DestinationError),
        (table(ID, replace(A, type=B.type), B), ColumnRenamed(REF, A, A), IllegalChange),
    ],
)
def test_steps_that_do_not_fit_change_nothing(
    lake: IcebergDestination, after: Table, change: Any, error: type[Exception]
) -> None:
    create(lake, AB)
    before = metadata(lake)
    with pytest.raises(error):
        run(lake, after, change)
    assert metadata(lake) == before


@shows(trap=4)
def test_an_added_not_null_column_is_nullable(lake: IcebergDestination) -> None:
    create(lake, AB)
    strict = column("c", "int32", nullable=False)
    run(lake, table(ID, A, B, strict), ColumnAdded(REF, strict, 3))
    assert lake.schema.inspect([REF]).tables[0].by_name["c"].nullable


def test_a_change_by_hand_is_seen(lake: IcebergDestination) -> None:
    create(lake, table(ID, column("a", "int16"), B))
    found = lake.lake.load(REF)
    assert found is not None
    from pyiceberg.types import LongType, StringType

    with found.update_schema() as update:
        update.update_column("a", LongType())
        update.add_column("extra", StringType())
        update.rename_column("b", "bee")
    columns = lake.schema.inspect([REF]).tables[0].by_name
    assert (str(columns["a"].type), columns["a"].alias) == ("int64", "a")
    assert (columns["bee"].alias, columns["bee"].id) == ("b", "#b")
    assert (columns["extra"].alias, columns["extra"].id) == ("", None)


def test_values_that_do_not_fit_a_rewrite_leave_everything_as_it_was(lake: IcebergDestination) -> None:
    create(lake, AB)
    lake.write.append(REF, [stage(lake, REF, [{"id": 1, "b": "12"}, {"id": 2, "b": "x"}])], Commit("run-1", 1))
    before, number = metadata(lake), column("b", "int32")
    with pytest.raises(IllegalChange, match=r"'b'.*int32"):
        run(lake, table(ID, A, number), RewriteColumn(REF, B, number))
    assert metadata(lake) == before
    data = Path(lake.write.target(REF).location.removeprefix("file://"))
    assert not list(data.glob("rewrite-*"))


def test_a_rewrite_keeps_all_other_values(lake: IcebergDestination) -> None:
    create(lake, AB)
    for number in range(3):
        row = {"id": number, "a": number, "b": str(number)}
        lake.write.append(REF, [stage(lake, REF, [row])], Commit("run-1", 1, "c"))
    wide = column("b", "decimal(5,1)")
    run(lake, table(ID, A, wide), RewriteColumn(REF, B, wide))
    assert [(i, a, int(b)) for i, a, b in rows_of(lake)] == [(0, 0, 0), (1, 1, 1), (2, 2, 2)]
    state = lake.schema.state(REF)
    assert state is not None
    assert (state.cursor, state.rows) == ("c", 3)


def test_a_dropped_table_waits_with_its_files(lake: IcebergDestination) -> None:
    create(lake)
    lake.write.append(REF, [stage(lake, REF, [{"id": 1}])], Commit("run-1", 1))
    drop = step(REF, TableRemoved(ORDERS))
    lake.schema.execute(REF, [drop], None, Commit("run-2", 1))
    parked = ("_instep_dropped", f"shop.orders.{drop.id}")
    assert lake.schema.tables() == []
    assert len(rows_of(lake, parked)) == 1
    assert json.loads(metadata(lake, parked)["properties"]["instep.dropped"])["table"] == list(REF)


def test_a_replaced_table_takes_only_its_whole_new_self(lake: IcebergDestination) -> None:
    create(lake)
    lake.write.append(REF, [stage(lake, REF, [{"id": 1}])], Commit("run-1", 1))
    new = Table("shop", "orders", (column("id", "string", key=1), *SYSTEM), id="oid-2", generation=1)
    [at] = run(lake, new, TableReplaced(ORDERS, new))
    file = stage(lake, REF, [{"id": "x"}])
    with pytest.raises(DestinationError, match="replaced"):
        lake.write.append(REF, [file], Commit("run-2", 1))
    with pytest.raises(DestinationError, match="replaced"):
        lake.write.merge(None, REF, [file], Merge(("id",)), Commit("run-2", 1))  # type: ignore[arg-type]
    wider = replace(new, columns=(*new.columns, column("more", "int32")))
    run(lake, wider, ColumnAdded(REF, wider.columns[-1], 4))
    file = stage(lake, REF, [{"id": "x", "more": 3}])
    lake.write.merge(None, REF, [file], Merge(("id",), complete=True), Commit("run-2", 1))  # type: ignore[arg-type]
    assert rows_of(lake) == [("x", 3)]
    made = metadata(lake)
    assert {n for n in made["refs"] if n.startswith("instep-undo-")} != set()
    assert "instep.pending" not in made["properties"]
    assert at
    assert lake.schema.inspect([REF]).tables == (wider,)
