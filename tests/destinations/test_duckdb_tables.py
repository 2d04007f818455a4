"""What the steps of a plan leave in the file: parked columns and tables, edits manually, names, copies."""

from __future__ import annotations

import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from duckdb_world import Warehouse

from instep.destinations.base import Commit
from instep.destinations.duckdb.destination import DuckDbDestination
from instep.destinations.sql.tables import PARKED
from instep.errors import Conflict, DestinationError, Fenced, IllegalChange, SchemaError
from instep.schema.catalog.catalog import Table
from instep.schema.catalog.types import parse
from instep.schema.changes.kinds import (
    ColumnAdded,
    ColumnRemoved,
    ColumnRenamed,
    TableAdded,
    TableRemoved,
    TableRenamed,
)
from instep.schema.planning.step import RewriteColumn, UndropColumn, step
from lake import ID, ORDERS, REF, column, create, rows_of, stage, table

NAME, AMOUNT = ORDERS.columns[1:3]
WITHOUT = replace(ORDERS, columns=tuple(c for c in ORDERS.columns if c.name != "name"))


@pytest.fixture
def shop(tmp_path: Path) -> Warehouse:
    made = Warehouse(tmp_path)
    made.append({"id": 1, "name": "a", "amount": 1}, {"id": 2, "name": "b", "amount": 2})
    return made


def undrop_table(shop: Warehouse) -> None:
    shop.change(ORDERS, UndropColumn(REF, NAME, NAME))


LATER: list[tuple[str, Any, list[Any], int]] = [
    ("nothing", lambda s: None, [(1, "a"), (2, "b")], 0),
    ("updated", lambda s: s.merge({"id": 1, "amount": 9}), [(1, "a"), (2, "b")], 0),
    ("inserted", lambda s: s.merge({"id": 3}), [(1, "a"), (2, "b"), (3, None)], 1),
    ("appended", lambda s: s.append({"id": 3}, {"id": 4}), [(1, "a"), (2, "b"), (3, None), (4, None)], 2),
    ("loaded anew", lambda s: s.overwrite({"id": 2}, {"id": 7}), [(2, "b"), (7, None)], 1),
    ("deleted", lambda s: s.merge({"id": 2}, complete=True, deletes="hard"), [(2, "b")], 0),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("later", "rows", "written"), [c[1:] for c in LATER], ids=[c[0] for c in LATER])
def test_a_dropped_column_keeps_its_values(shop: Warehouse, later: Any, rows: list[Any], written: int) -> None:
    shop.change(WITHOUT, ColumnRemoved(REF, NAME, 1))
    assert shop.to.schema.inspect([REF]).get(REF) == WITHOUT
    later(shop)
    assert shop.to.lifecycle.undrop_report(REF, "name").written == written
    undrop_table(shop)
    assert shop.to.schema.inspect([REF]).get(REF) is not None
    assert shop.rows("id", "name") == rows
    assert shop.to.write.restore_dropped_values(REF, "name", shop.commit()) == 0


def test_of_two_dropped_columns_of_one_name_the_later_one_returns(shop: Warehouse) -> None:
    shop.change(WITHOUT, ColumnRemoved(REF, NAME, 1))
    number = column("name", "int32", id="#2")
    shop.change(replace(WITHOUT, columns=(*WITHOUT.columns, number)), ColumnAdded(REF, number, 5))
    shop.merge({"id": 1, "name": 7})
    shop.change(WITHOUT, ColumnRemoved(REF, number, 5))
    shop.change(replace(WITHOUT, columns=(*WITHOUT.columns, number)), UndropColumn(REF, number, number))
    assert shop.rows("id", "name") == [(1, 7), (2, None)]


def test_what_is_kept_goes_when_its_time_is_over(shop: Warehouse) -> None:
    shop.change(WITHOUT, ColumnRemoved(REF, NAME, 1))
    other = replace(ORDERS, name="other", id="oid-other")
    create(shop.to, other, shop.commit())
    shop.to.schema.execute(other.ref, [step(other.ref, TableRemoved(other))], None, shop.commit())
    assert shop.to.lifecycle.purge_expired([REF, other.ref], shop.fence) == []
    time.sleep(0.01)
    late = DuckDbDestination(shop.to.config.model_copy(update={"undo_days": 0}))
    with pytest.raises(Fenced):
        late.lifecycle.purge_expired([REF], shop.fence - 1)
    assert late.lifecycle.purge_expired([REF], shop.fence) == ["shop.orders.name", "shop.other"]
    assert shop.to.lifecycle.undrop_report(REF, "name").why_not == "column 'name' is no longer retained"
    assert not shop.to.lifecycle.dropped(other.ref, "oid-other")
    for attempt in (lambda: undrop_table(shop), lambda: shop.to.schema.undrop_table(other.ref, other, shop.commit())):
        with pytest.raises(DestinationError, match="no longer retained"):
            attempt()
    assert [n for (n,) in shop.sql("SELECT column_name FROM duckdb_columns()") if n.startswith(PARKED)] == []


def test_a_dropped_table_returns_unless_its_name_is_taken(shop: Warehouse) -> None:
    for _ in range(2):
        shop.to.schema.execute(REF, [step(REF, TableRemoved(ORDERS))], None, Commit("drop", 50))
    assert shop.to.schema.tables() == []
    assert shop.to.lifecycle.dropped(REF, ORDERS.id)
    assert not shop.to.lifecycle.dropped(REF, "another")
    create(shop.to, replace(ORDERS, id="another"), Commit("new", 51))
    with pytest.raises(DestinationError, match="another table is now called"):
        shop.to.schema.undrop_table(REF, ORDERS, Commit("undo", 52))
    shop.to.schema.execute(REF, [step(REF, TableRemoved(ORDERS))], None, Commit("drop", 52))
    for _ in range(2):
        shop.to.schema.undrop_table(REF, ORDERS, Commit("undo", 53))
    assert shop.rows("id", "name") == [(1, "a"), (2, "b")]
    assert shop.to.schema.inspect([REF]).get(REF) == ORDERS


def test_a_table_moves_into_another_schema_with_what_it_keeps(shop: Warehouse) -> None:
    shop.change(WITHOUT, ColumnRemoved(REF, NAME, 1))
    new = replace(WITHOUT, schema="other")
    shop.to.schema.execute(REF, [step(REF, TableRenamed(WITHOUT, new))], new, shop.commit())
    assert shop.to.schema.tables() == [new.ref]
    back = replace(ORDERS, schema="other")
    shop.to.schema.execute(new.ref, [step(new.ref, UndropColumn(new.ref, NAME, NAME))], back, Commit("r", 90))
    assert rows_of(shop.to, new.ref, ["id", "name"]) == [(1, "a"), (2, "b")]
    assert shop.to.schema.inspect([new.ref]).get(new.ref) == back


def test_a_table_does_not_move_onto_another(shop: Warehouse) -> None:
    new = replace(ORDERS, schema="other")
    create(shop.to, new, shop.commit())
    with pytest.raises(Conflict, match=r"shop.orders cannot be renamed: other.orders exists"):
        shop.to.schema.execute(REF, [step(REF, TableRenamed(ORDERS, new))], new, shop.commit())
    assert rows_of(shop.to, REF, ["id"]) == [(1,), (2,)]


BY_HAND = [
    ("type", "ALTER TABLE shop.shop.orders ALTER amount TYPE DOUBLE", "amount", "float64"),
    ("new", "ALTER TABLE shop.shop.orders ADD COLUMN s STRUCT(a INTEGER, \"b c\" DATE[])", "s",
     'struct("a" int32, "b c" array(date))'),
    ("unknown", "ALTER TABLE shop.shop.orders ADD COLUMN m MAP(VARCHAR, INTEGER)", "m", "json"),
    ("hugeint", "ALTER TABLE shop.shop.orders ADD COLUMN h HUGEINT", "h", "decimal(38,0)"),
    ("time", "ALTER TABLE shop.shop.orders ADD COLUMN t TIME", "t", "time"),
    ("enum", "ALTER TABLE shop.shop.orders ADD COLUMN e ENUM('a', 'b')", "e", "string"),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("statement", "name", "kind"), [c[1:] for c in BY_HAND], ids=[c[0] for c in BY_HAND])
def test_an_edit_by_hand_is_seen(shop: Warehouse, statement: str, name: str, kind: str) -> None:
    shop.sql(statement)
    found = shop.to.schema.inspect([REF]).get(REF)
    assert found is not None
    assert found.by_name[name].type == parse(kind)


def test_a_column_dropped_by_hand_is_seen(shop: Warehouse) -> None:
    shop.sql("ALTER TABLE shop.shop.orders DROP name")
    assert shop.to.schema.inspect([REF]).get(REF) == WITHOUT
    shop.sql("DROP TABLE shop.shop.orders")
    assert shop.to.schema.inspect([REF]).tables == ()


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["orders", "ORDERS"])
def test_tables_of_others_are_left_alone(tmp_path: Path, name: str) -> None:
    shop = Warehouse(tmp_path, replace(ORDERS, name="mine", id="x"))
    shop.sql(f"CREATE TABLE shop.shop.{name} AS SELECT 1 AS a")
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
    assert shop.sql("SELECT a FROM shop.shop.orders") == [(1,)]
    assert shop.to.schema.tables() == [("shop", "mine")]


NAMES = [("\u00e9", "\u00c9"), ("\u00c9", "\u00e9"), ("stra\u00dfe", "STRASSE"), ("x\u212a", "xk")]


@pytest.mark.parametrize("first", ["ours", "theirs"])
@pytest.mark.parametrize(("ours", "theirs"), NAMES)
def test_a_table_of_others_with_a_name_that_is_one_in_other_alphabets(
    tmp_path: Path, ours: str, theirs: str, first: str
) -> None:
    """DuckDB tells no case of ASCII letters, and of no others."""
    shop, wanted = Warehouse(tmp_path), table(ID, column("v", "string"), name=ours)
    other = f'CREATE TABLE shop.shop."{theirs}" AS SELECT 1 AS a'
    if first == "theirs":
        shop.sql(other)
    create(shop.to, wanted, shop.commit())
    if first == "ours":
        shop.sql(other)
    both = [wanted.ref, ("shop", theirs)]
    assert list(shop.to.schema.foreign(both)) == both[1:]
    assert shop.to.schema.inspect(both[:1]).get(wanted.ref) == wanted
    more = column("more", "int32")
    wider = replace(wanted, columns=(*wanted.columns, more))
    shop.to.schema.execute(wanted.ref, [step(wanted.ref, ColumnAdded(wanted.ref, more, 3))], wider, shop.commit())
    assert shop.to.schema.inspect(both[:1]).get(wanted.ref) == wider
    renamed = replace(wider, name=theirs.swapcase() if theirs.isascii() else theirs)
    with pytest.raises(Conflict, match="cannot be renamed"):
        shop.to.schema.execute(wanted.ref, [step(wanted.ref, TableRenamed(wider, renamed))], renamed, shop.commit())
    assert shop.sql(f'FROM shop.shop."{theirs}"') == [(1,)]


def test_a_table_whose_name_changes_its_case(shop: Warehouse) -> None:
    new = replace(ORDERS, name="Orders")
    shop.to.schema.execute(REF, [step(REF, TableRenamed(ORDERS, new))], new, shop.commit())
    assert shop.to.schema.inspect([new.ref]).get(new.ref) == new


REFUSED: list[tuple[str, tuple[Any, ...], Table, type[Exception], str]] = [
    ("case twins", (ColumnAdded(REF, column("NAME", "string"), 3),),
     replace(ORDERS, columns=(*ORDERS.columns, column("NAME", "string"))), SchemaError, "differ in case only"),
    ("twins in a struct", (ColumnAdded(REF, column("s", 'struct("a" int32, "A" int32)'), 3),),
     replace(ORDERS, columns=(*ORDERS.columns, column("s", 'struct("a" int32, "A" int32)'))), SchemaError, "in case"),
    ("values that do not fit", (RewriteColumn(REF, NAME, column("name", "int32")),),
     replace(ORDERS, columns=(ID, column("name", "int32"), *ORDERS.columns[2:])), IllegalChange, "do not fit int32"),
    ("not what is wanted", (ColumnRemoved(REF, NAME, 1),), replace(ORDERS, comment="x"), DestinationError,
     "do not lead to"),
    ("no such column", (ColumnRenamed(REF, column("zip", "string"), column("zap", "string")),), WITHOUT,
     DestinationError, "has no column 'zip'"),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("changes", "after", "error", "text"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_a_refused_change_leaves_everything(
    shop: Warehouse, changes: Any, after: Table, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        shop.change(after, *changes)
    assert shop.to.schema.inspect([REF]).get(REF) == ORDERS
    assert shop.rows("id", "name") == [(1, "a"), (2, "b")]


CASTS = [
    ("int32", "string", [5, None, -7], ["5", None, "-7"]),
    ("string", "json", ['{"a": 1}', None, "[]"], ['{"a": 1}', None, "[]"]),
    ("json", "string", ['{"a": 1}', None, "1"], ['{"a": 1}', None, "1"]),
    ("array(boolean)", "string", [[True, None], None, []], ["[true,null]", None, "[]"]),
    ("array(int32)", "array(int64)", [[1, None], None, []], [[1, None], None, []]),
    ('struct("a" int32)', 'struct("a" int32, "b" string)', [{"a": 1}, None, {"a": None}],
     [{"a": 1, "b": None}, None, {"a": None, "b": None}]),
    ("decimal(10,2)", "float64", [1, None, 2], [1.0, None, 2.0]),
    ("timestamptz", "string", [None, None, None], [None, None, None]),
    ("boolean", "string", [True, None, False], ["true", None, "false"]),
    ("int8", "string(3)", [-128, None, 127], ["-128", None, "127"]),
    ("int64", "decimal(38,2)", [-(2**63), None, 2**63 - 1], [Decimal(-(2**63)), None, Decimal(2**63 - 1)]),
    ("int64", "decimal(10,2)", [-99_999_999, None, 7], [Decimal(-99_999_999), None, Decimal(7)]),
    ("int16", "decimal(5,0)", [-(2**15), None, 7], [Decimal(-(2**15)), None, Decimal(7)]),
    ("decimal(9,2)", "string", [Decimal("-0.50"), None, Decimal("1234567.10")], ["-0.50", None, "1234567.10"]),
    ("decimal(3,3)", "string", [Decimal("-0.5"), None, Decimal("0")], ["-0.500", None, "0.000"]),
    ("decimal(38,10)", "string", [Decimal("1e-10"), None, Decimal(10**27)],
     ["0.0000000001", None, f"{10**27}.0000000000"]),
    ("decimal(9,2)", "decimal(12,4)", [Decimal("-0.05"), None, Decimal("1234567.1")],
     [Decimal("-0.05"), None, Decimal("1234567.1")]),
    ("uuid", "string", [UUID(int=10).bytes, None, UUID(int=2**128 - 1).bytes],
     [str(UUID(int=10)), None, str(UUID(int=2**128 - 1))]),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("before", "after", "values", "expected"), CASTS, ids=[f"{c[0]} to {c[1]}" for c in CASTS])
def test_a_rewritten_column_has_the_same_values(
    tmp_path: Path, before: str, after: str, values: list[Any], expected: list[Any]
) -> None:
    old, new = column("v", before), column("v", after)
    shop = Warehouse(tmp_path, table(ID, old))
    kept = shop.to.write.target(REF).schema.field("v").type
    if pa.types.is_string(kept) or pa.types.is_large_string(kept):
        values = [str(UUID(bytes=v)) if isinstance(v, bytes) else v for v in values]  # as Delta stores them
    shop.append(*({"id": i, "v": v} for i, v in enumerate(values)))
    shop.change(table(ID, new), RewriteColumn(REF, old, new))
    assert [v for _, v in shop.rows("id", "v")] == expected
    assert shop.to.schema.inspect([REF]).get(REF) == table(ID, new)


def test_a_column_is_not_rewritten_beside_one_that_hides_the_place_of_rows(tmp_path: Path) -> None:
    old, new, rowid = column("v", "string"), column("v", "json"), column("RowId", "int32")
    shop = Warehouse(tmp_path, table(ID, old, rowid))
    with pytest.raises(IllegalChange, match="called rowid"):
        shop.change(table(ID, new, rowid), RewriteColumn(REF, old, new))


def test_values_that_the_database_casts_as_we_do_stay_in_it(tmp_path: Path) -> None:
    """Nothing has to tell rows apart then."""
    old, new, rowid = column("v", "int32"), column("v", "string"), column("RowId", "int32")
    shop = Warehouse(tmp_path, table(ID, old, rowid))
    shop.append({"id": 1, "v": 5}, {"id": 2})
    shop.change(table(ID, new, rowid), RewriteColumn(REF, old, new))
    assert shop.rows("id", "v") == [(1, "5"), (2, None)]


def test_a_copy_stays_as_it_was_and_is_nobody_elses(shop: Warehouse) -> None:
    place = ("shop", "orders__before")
    commit = shop.commit()
    assert [shop.to.lifecycle.clones.clone_table(REF, place, commit) for _ in range(2)] == [2, 2]
    assert shop.to.schema.tables() == [REF, place]
    assert list(shop.to.schema.foreign([REF, place])) == [place]
    shop.append({"id": 3})
    with pytest.raises(Conflict, match="is there already"):
        shop.to.lifecycle.clones.clone_table(REF, place, shop.commit())
    assert rows_of(shop.to, place, ["id", "name"]) == [(1, "a"), (2, "b")]
    with pytest.raises(DestinationError, match="not a copy made by instep"):
        shop.to.lifecycle.clones.purge_clone(REF, shop.fence)
    for _ in range(2):
        shop.to.lifecycle.clones.purge_clone(place, shop.fence)
    assert shop.to.schema.tables() == [REF]


def test_an_empty_table_needs_no_copy(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path)
    assert shop.to.lifecycle.clones.clone_table(REF, ("shop", "copy"), shop.commit()) is None
    shop.append()
    assert shop.to.lifecycle.clones.clone_table(REF, ("shop", "copy"), shop.commit()) is None


def test_what_dead_runs_left_is_removed(shop: Warehouse, tmp_path: Path) -> None:
    target = shop.to.write.target(REF)
    data, held = (Path(p.removeprefix("file://")) for p in (target.location, target.quarantine))
    for folder in (data / "r-dead", data / "r-dead-1", data / "r-alive"):
        folder.mkdir(parents=True)
        (folder / "x.parquet").write_text("")
    held.mkdir()
    for name in ("r-dead-0.parquet", "r2-0.parquet"):
        (held / name).write_text("")
    shop.to.lifecycle.remove_uncommitted_files(REF, {"r-dead": 1, "r2": 2})
    assert sorted(p.name for p in data.iterdir()) == ["r-alive"]
    assert [p.name for p in held.iterdir()] == ["r2-0.parquet"], "r2 has committed its rows"
    shop.to.lifecycle.remove_uncommitted_files(("shop", "nothing"), {"r": 1})


def test_staged_files_go_once_their_rows_are_in(shop: Warehouse) -> None:
    file = stage(shop.to, REF, [{"id": 5}])
    shop.to.write.append(REF, [file], shop.commit())
    assert not Path(file.path.removeprefix("file://")).exists()


def test_a_table_is_added_once(shop: Warehouse) -> None:
    with pytest.raises(Conflict, match=r"shop\.orders exists"):
        shop.to.schema.execute(REF, [step(REF, TableAdded(WITHOUT))], WITHOUT, shop.commit())
    shop.to.schema.execute(REF, [step(REF, TableAdded(ORDERS))], ORDERS, shop.commit())
    assert len(shop.rows()) == 2
