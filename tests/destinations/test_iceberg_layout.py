"""Partition specs, sort orders and identifier fields made with pyiceberg: guarded, kept, never loaded wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform

from instep.destinations.base import Commit, Merge
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.metadata.partition import why_not_loaded
from instep.errors import DestinationError, IllegalChange
from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import ColumnAdded, ColumnRemoved, ColumnRenamed, ColumnWidened, TableReplaced
from instep.schema.planning.step import RewriteColumn, step
from lake import ID, REF, column, create, rows_of, stage, table

A, B, AT, D = column("a", "int32"), column("b", "string"), column("at", "timestamp"), column("d", "decimal(5,2)")
F = column("f", "float64")
T = table(ID, A, B, AT, D, F)
RUN = Commit("run-1", 1)


@pytest.fixture
def lake(tmp_path: Path) -> IcebergDestination:
    made = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    create(made, T)
    return made


def found(lake: IcebergDestination) -> Any:
    return lake.lake.catalog.load_table(REF)


def metadata(lake: IcebergDestination) -> Any:
    return lake.lake.metadata([REF])[REF]


def partition(lake: IcebergDestination, name: str, transform: Any) -> None:
    with found(lake).update_spec() as update:
        update.add_field(name, transform, "part")


def unpartition(lake: IcebergDestination) -> None:
    with found(lake).update_spec() as update:
        update.remove_field("part")


def sort(lake: IcebergDestination, name: str) -> None:
    with found(lake).update_sort_order() as update:
        update.asc(name, IdentityTransform())


def identify(lake: IcebergDestination, name: str) -> None:
    with found(lake).update_schema(allow_incompatible_changes=True) as update:
        update.update_column(name, required=True)
        update.set_identifier_fields(name)


def run(lake: IcebergDestination, after: Table, *changes: Any) -> None:
    lake.schema.execute(REF, [step(REF, change) for change in changes], after, Commit("run-2", 1))


LAYOUTS = [
    ("identity", lambda lake: partition(lake, "a", IdentityTransform()), {"a": "the partition spec (a)"}, True),
    ("bucket", lambda lake: partition(lake, "a", BucketTransform(4)), {"a": "the partition spec (bucket(4, a))"}, True),
    ("truncate", lambda lake: partition(lake, "d", TruncateTransform(9)),
     {"d": "the partition spec (truncate(9, d))"}, True),
    ("day", lambda lake: partition(lake, "at", DayTransform()), {"at": "the partition spec (day(at))"}, False),
    ("sorted", lambda lake: sort(lake, "b"), {"b": "the sort order (b)"}, True),
    ("identified", lambda lake: identify(lake, "a"), {"a": "the set of identifier fields"}, True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "edit", "uses", "widens"), LAYOUTS, ids=[c[0] for c in LAYOUTS])
def test_what_stands_on_columns(lake: IcebergDestination, name: str, edit: Any, uses: Any, widens: bool) -> None:
    assert lake.schema.guards([REF]) == {}
    edit(lake)
    guarded = lake.schema.guards([REF])[REF]
    assert {c: g[0].use for c, g in guarded.items()} == uses
    assert all(g.widens == widens for all_ in guarded.values() for g in all_)
    assert why_not_loaded(metadata(lake)) == ""


def wider(name: str, kind: str) -> tuple[Table, ColumnWidened]:
    before, after = T.by_name[name], column(name, kind)
    return replace(T, columns=tuple(after if c is before else c for c in T.columns)), ColumnWidened(REF, before, after)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_drop_is_refused_whoever_asks(lake: IcebergDestination, name: str) -> None:
    partition(lake, "a", IdentityTransform())
    sort(lake, "b")
    gone = T.by_name[name]
    with pytest.raises(IllegalChange, match=rf"column {name} cannot be dropped: the .* \({name}\) uses it"):
        run(lake, replace(T, columns=tuple(c for c in T.columns if c is not gone)), ColumnRemoved(REF, gone, 1))
    assert name in found(lake).schema().column_names


def test_a_rewrite_and_a_new_generation_are_refused(lake: IcebergDestination) -> None:
    sort(lake, "a")
    text = column("a", "string")
    after = table(ID, text, B, AT, D, F)
    with pytest.raises(IllegalChange, match=r"a cannot be rewritten from int32 to string: the sort order \(a\)"):
        run(lake, after, RewriteColumn(REF, A, text))
    with pytest.raises(IllegalChange, match=r"cannot get a new generation: the sort order \(a\) uses it"):
        run(lake, after, TableReplaced(T, after))


def test_a_renamed_column_is_known_by_its_old_name(lake: IcebergDestination) -> None:
    sort(lake, "a")
    new, text = column("x", "int32", id=A.id, alias=A.alias), column("x", "string", id=A.id, alias=A.alias)
    with pytest.raises(IllegalChange, match="x cannot be rewritten"):
        run(lake, table(ID, text, B, AT, D, F), ColumnRenamed(REF, A, new), RewriteColumn(REF, new, text))


def test_a_rename_passes_by_field_id(lake: IcebergDestination) -> None:
    partition(lake, "a", IdentityTransform())
    sort(lake, "a")
    new = column("x", "int32")
    run(lake, table(ID, new, B, AT, D, F), ColumnRenamed(REF, A, new))
    now = found(lake)
    assert now.schema().find_column_name(now.spec().fields[0].source_id) == "x"
    assert now.schema().find_column_name(now.sort_order().fields[0].source_id) == "x"
    assert {c: g[0].use for c, g in lake.schema.guards([REF])[REF].items()} == {"x": "the partition spec (x)"}


@pytest.mark.parametrize(("name", "kind", "transform"), [("a", "int64", IdentityTransform()),
                                                         ("d", "decimal(9,2)", IdentityTransform())])  # fmt: skip
def test_a_promotion_that_keeps_partition_values_passes(
    lake: IcebergDestination, name: str, kind: str, transform: Any
) -> None:
    partition(lake, name, transform)
    values = {"a": pa.array([1, 2], pa.int32()), "d": pa.array(["1.00", "2.00"]).cast(pa.decimal128(5, 2))}
    now = found(lake)
    arrow = now.schema().as_arrow()
    rows = pa.table({"id": pa.array([1, 2], arrow.field("id").type), **values})
    now.append(pa.table({f.name: rows[f.name] if f.name in rows.column_names else pa.nulls(2, f.type)
                         for f in arrow}, schema=arrow))  # fmt: skip
    run(lake, *wider(name, kind))
    found(lake).refresh()
    assert sorted(found(lake).scan(row_filter=f"{name} = 2").to_arrow()["id"].to_pylist()) == [2]


def test_identifier_fields_outlive_other_changes(lake: IcebergDestination) -> None:
    identify(lake, "a")
    extra = column("e", "string")
    new = column("a", "int32", nullable=False)
    run(lake, table(ID, new, B, AT, D, F, extra), ColumnAdded(REF, extra, 6))
    assert found(lake).schema().identifier_field_ids == [found(lake).schema().find_field("a").field_id]


def test_a_table_in_partitions_that_we_cannot_make_takes_no_files(lake: IcebergDestination) -> None:
    file = stage(lake, REF, [{"id": 1, "f": 7.0}])
    lake.write.append(REF, [file], RUN)
    other = stage(lake, REF, [{"id": 2, "f": 8.0}], chunk=1)
    partition(lake, "f", IdentityTransform())
    tries: list[Any] = [
        lambda: lake.write.target(REF),
        lambda: lake.write.append(REF, [other], RUN),
        lambda: lake.write.overwrite(REF, [other], RUN),
        lambda: lake.write.merge(None, REF, [other], Merge(key=("id",)), RUN),
    ]
    for attempt in tries:
        with pytest.raises(DestinationError, match="cannot be loaded: it is partitioned by f"):
            attempt()
    assert len(rows_of(lake)) == 1
    unpartition(lake)
    lake.write.append(REF, [other], RUN)
    assert len(rows_of(lake)) == 2


def test_files_that_were_staged_before_the_table_was_partitioned_are_split(lake: IcebergDestination) -> None:
    file = stage(lake, REF, [{"id": n, "a": n % 3} for n in range(7)])
    partition(lake, "a", IdentityTransform())
    lake.write.append(REF, [file], RUN)
    assert [t.file.partition[0] for t in found(lake).scan(row_filter="a = 1").plan_files()] == [1]
    assert len(list(found(lake).scan().plan_files())) == 3
    assert rows_of(lake, columns=("id",)) == [(n,) for n in range(7)]


def test_rows_of_files_in_earlier_partitions_are_taken_out(lake: IcebergDestination) -> None:
    partition(lake, "a", IdentityTransform())
    now = found(lake)
    arrow = now.schema().as_arrow()
    one = {"id": pa.array([1], arrow.field("id").type), "a": pa.array([7], pa.int32())}
    now.append(pa.table({f.name: one.get(f.name, pa.nulls(1, f.type)) for f in arrow}, schema=arrow))
    unpartition(lake)
    file = stage(lake, REF, [{"id": 1, "a": 9}])
    lake.write.append(REF, [], RUN)
    lake.write.merge(None, REF, [file], Merge(key=("id",)), RUN)
    assert [r[:2] for r in rows_of(lake, columns=("id", "a"))] == [(1, 9)]
