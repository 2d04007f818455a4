"""Values for rows that have none, by key, and values that come back from quarantine: newer ones stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from duckdb_world import META, Row, Warehouse

from instep.destinations.base import FillSize, InvalidValueCount, Merge, RowUpdate
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.errors import Conflict, DestinationError, Fenced, StageError
from instep.schema.catalog.catalog import Column
from instep.schema.catalog.types import parse
from instep.schema.changes.kinds import ColumnAdded
from instep.stage.conform import compact_json
from lake import ID, PREFIX, REF, column, create, rows_of, stage, table

OLD = table(ID, column("name", "string"))
NEW = table(ID, column("name", "string"), column("size", "int64"), column("tags", "array(string)"))


def note(*columns: str) -> str:
    return compact_json({"changes": [{"field": c, "change": "nulled"} for c in columns]})


@pytest.fixture
def shop(tmp_path: Path) -> Warehouse:
    made = Warehouse(tmp_path, OLD)
    made.append({"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"})
    made.change(NEW, *(ColumnAdded(REF, c, 2 + i) for i, c in enumerate(NEW.columns[2:4])))
    return made


FILLS: list[tuple[str, list[Row], list[Row], list[tuple[Any, ...]], int]] = [
    ("some rows", [], [{"id": 1, "size": 10}, {"id": 3, "size": 30}, {"id": 9, "size": 1}],
     [(1, 10), (2, None), (3, 30)], 2),
    ("a newer value stays", [{"id": 1, "size": 7}], [{"id": 1, "size": 10}], [(1, 7), (2, None), (3, None)], 0),
    ("a row that is new", [{"id": 4}], [{"id": 4, "size": 4}], [(1, None), (2, None), (3, None), (4, 4)], 1),
    ("a value that is NULL", [], [{"id": 1}], [(1, None), (2, None), (3, None)], 0),
    ("nothing", [], [], [(1, None), (2, None), (3, None)], 0),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("before", "values", "rows", "filled"), [c[1:] for c in FILLS], ids=[c[0] for c in FILLS])
def test_a_fill(shop: Warehouse, before: list[Row], values: list[Row], rows: Any, filled: int) -> None:
    if before:
        shop.merge(*before)
    state = shop.to.schema.state(REF)
    assert state is not None
    done = shop.fill(*values)
    assert (done.rows, done.whole) == (filled, True)
    assert shop.rows("id", "size") == rows
    again = shop.fill(*values, number=2)
    assert (again.rows, shop.rows("id", "size")) == (0, rows)
    after = shop.to.schema.state(REF)
    assert after is not None
    assert (after.cursor, after.accepted, after.rows) == (state.cursor, state.accepted, state.rows)


def test_what_it_takes(shop: Warehouse) -> None:
    assert shop.to.write.fill_size(REF, {"size": 1}).rows == 3
    shop.fill({"id": 1, "size": 10}, number=1)
    assert shop.to.write.fill_size(REF, {"size": 1}) == FillSize(0, 0, 0, 1), "that backfill has been through"
    left = shop.to.write.fill_size(REF, {"size": 2})
    assert (left.files, left.rows, left.of) == (1, 2, 1)
    assert shop.to.write.fill_size(REF, {"size": 1, "tags": 3}).rows == 3


def test_a_table_without_rows_has_nothing_to_fill(tmp_path: Path) -> None:
    shop = Warehouse(tmp_path, NEW)
    assert shop.to.write.fill_size(REF, {"size": 1}).why_not == "it has not been loaded yet"
    with pytest.raises(DestinationError, match="not been loaded"):
        shop.fill({"id": 1, "size": 1})


def test_where_there_is_no_file_yet_nothing_is_loaded(tmp_path: Path) -> None:
    to = DuckDbDestination(DuckDbConfig.resolved(name="lake", path=str(tmp_path / "no.duckdb")))
    assert to.write.fill_size(REF, {"size": 1}).why_not == "it has not been loaded yet"
    assert not to.file.exists()


NOTES: list[tuple[str, str | None, Row, tuple[Any, ...]]] = [
    ("came", note("size"), {"size": 5}, (5, None)),
    ("came, others stay", note("size", "name"), {"size": 5}, (5, note("name"))),
    ("does not fit either", None, {META: note("size")}, (None, note("size"))),
    ("noted already", note("size"), {META: note("size")}, (None, note("size"))),
    ("of other columns", note("name"), {"size": 5}, (5, note("name"))),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("old", "value", "expected"), [c[1:] for c in NOTES], ids=[c[0] for c in NOTES])
def test_notes_follow(shop: Warehouse, old: str | None, value: Row, expected: tuple[Any, ...]) -> None:
    shop.merge({"id": 1, "name": "new", META: old})
    shop.fill({"id": 1, **value}, holds=META in value)
    size, meta = next((size, meta) for id, size, meta in shop.rows("id", "size", META) if id == 1)
    assert (size, meta and json.loads(meta)) == (expected[0], expected[1] and json.loads(expected[1]))


def test_nested_values_are_filled(shop: Warehouse) -> None:
    done = shop.fill({"id": 1, "tags": ["x", None]}, {"id": 2, "tags": []}, columns=("tags",))
    assert (done.rows, done.files) == (2, 1)
    assert shop.rows("id", "tags") == [(1, ["x", None]), (2, []), (3, None)]


PROMOTED: list[tuple[str, Any, str, Any, int, int]] = [
    ("a number", {"old": "7", "b": 1}, "int64", 7, 1, 0),
    ("does not fit", {"old": "many"}, "int64", None, 0, 1),
    ("nothing of that name", {"b": 1}, "int64", None, 0, 0),
    ("an array", {"old": "[1, 2]"}, "string", "[1, 2]", 1, 0),
]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kept", "kind", "value", "rows", "invalid_values"), [c[1:] for c in PROMOTED], ids=[c[0] for c in PROMOTED]
)
def test_kept_values_are_taken_out(
    tmp_path: Path, kept: Any, kind: str, value: Any, rows: int, invalid_values: int
) -> None:
    extra = Column(f"{PREFIX}extra", parse("json"))
    shop = Warehouse(tmp_path, table(ID, column("v", kind), extra))
    shop.append({"id": 1, extra.name: compact_json(kept)}, {"id": 2})
    columns = {"v": OverflowColumn("old", parse(kind))}
    assert shop.to.write.promote(REF, columns, extra.name, shop.commit()) == Promoted(rows, invalid_values)
    [(_, now, left), other] = shop.rows("id", "v", extra.name)
    assert now == value
    assert json.loads(left or "{}") == {k: v for k, v in kept.items() if k != "old" or not rows}
    assert other == (2, None, None)
    assert shop.to.write.promote(REF, columns, extra.name, shop.commit()).rows == 0


def keys(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def test_rows_that_were_met_are_amended(shop: Warehouse) -> None:
    met = shop.to.write.lookup_rows(REF, keys(3, 1, 99))
    found = dict(zip(met.numbers, met.rows.column("name").to_pylist(), strict=True))
    assert found == {0: "c", 1: "a"}
    place = met.numbers.index(1)
    updated = met.rows.slice(place, 1).set_column(1, met.rows.schema.field(1), pa.array(["changed"], pa.large_string()))
    new = pa.Table.from_pylist([{"id": 99, "name": "new", "tags": ["t"]}], met.rows.schema)
    state = shop.to.schema.state(REF)
    assert state is not None
    shop.to.write.update_rows(REF, met, RowUpdate([place], updated, new), shop.commit(cursor=state.cursor))
    assert shop.rows("id", "name", "tags") == [(1, "changed", None), (2, "b", None), (3, "c", None), (99, "new", ["t"])]
    with pytest.raises(Conflict, match="moved while"):
        shop.to.write.update_rows(REF, met, RowUpdate([place], updated, new.slice(0, 0)), shop.commit())


def test_a_late_amendment_is_refused(shop: Warehouse) -> None:
    met = shop.to.write.lookup_rows(REF, keys(1))
    late = shop.commit()
    shop.commit()
    with pytest.raises(Fenced):
        shop.to.write.update_rows(REF, met, RowUpdate([], met.rows.slice(0, 0), met.rows), late)


def test_a_trial_tells_what_does_not_fit(shop: Warehouse) -> None:
    shop.merge({"id": 1, "name": "5"}, {"id": 2, "name": "5.50"})
    tried = shop.to.write.sample_cast(REF, "name", parse("int32"), ["id"], 10)
    assert (tried.sampled, tried.invalid_values) == (3, 2)
    assert tried.row["id"] in (2, 3)
    assert shop.to.write.sample_cast(REF, "name", parse("string"), ["id"], 10).invalid_values == 0
    assert shop.to.write.count_invalid_values(REF, "name", parse("int32")).count == 2
    assert shop.to.write.count_invalid_values(REF, "name", parse("string(2)")) == InvalidValueCount(1, "5.50")
    assert shop.to.write.count_invalid_values(("shop", "nothing"), "name", parse("int32")) == InvalidValueCount()


def test_a_column_that_is_not_there_is_named(shop: Warehouse) -> None:
    write, text = shop.to.write, "table shop.orders has no column 'nothing'"
    for attempt in (
        lambda: write.read(REF, ["nothing"]),
        lambda: write.sample_cast(REF, "nothing", parse("int32"), ["id"], 10),
        lambda: write.count_invalid_values(REF, "nothing", parse("int32")),
    ):
        with pytest.raises(DestinationError, match=text) as caught:
            attempt()
        assert caught.value.hint == "see `instep schema show`"


@pytest.mark.parametrize(
    ("kind", "value", "other"), [("int64", 1, 2), ("string", "a", "b"), ("json", '{"a":1}', "[]")], ids=lambda v: str(v)
)
def test_rows_are_met_by_a_key_of_any_name_and_type(shop: Warehouse, kind: str, value: Any, other: Any) -> None:
    name = "id::text"
    wanted = table(column(name, kind, key=1), column("name", "string"), name="odd")
    ref = create(shop.to, wanted, shop.commit())
    rows = [{name: value, "name": "a"}, {name: other, "name": "b"}]
    shop.to.write.append(ref, [stage(shop.to, ref, rows)], shop.commit())
    schema = shop.to.write.target(ref).schema
    met = shop.to.write.lookup_rows(ref, pa.table({name: pa.array([value], schema.field(name).type)}))
    changed = pa.Table.from_pylist([{name: value, "name": "changed"}], met.rows.schema)
    shop.to.write.update_rows(ref, met, RowUpdate([0], changed, changed.slice(0, 0)), shop.commit())
    assert rows_of(shop.to, ref, [name, "name"]) == sorted([(value, "changed"), (other, "b")], key=repr)


def test_two_attempts_of_one_commit_at_once_add_their_rows_once(
    shop: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is done between the moment in which the other has staged its rows and its transaction."""
    files, commit, database = [stage(shop.to, REF, [{"id": 4}])], shop.commit(), shop.to.database
    loading, done = database.loading, list[int]()

    def later(*args: Any) -> Any:
        monkeypatch.undo()
        done.append(shop.to.write.append(REF, files, commit).inserted)
        return loading(*args)

    monkeypatch.setattr(database, "loading", later)
    done.append(shop.to.write.append(REF, files, commit).inserted)
    assert done == [1, 0]
    assert shop.rows("id") == [(1,), (2,), (3,), (4,)]
    state = shop.to.schema.state(REF)
    assert state is not None
    assert state.rows == 4


TWINS: list[tuple[str, list[Row], list[Row], str]] = [
    ("staged without a key", [], [{"name": "x"}], "1 staged rows have NULL in their key"),
    ("twins in the table", [{"id": 1}], [{"id": 1, "name": "x"}], "holds 1 keys more than once"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("before", "staged", "text"), [c[1:] for c in TWINS], ids=[c[0] for c in TWINS])
def test_a_merge_that_cannot_tell_rows_apart_is_refused(
    shop: Warehouse, before: list[Row], staged: list[Row], text: str
) -> None:
    if before:
        shop.append(*before)
    rows = shop.rows()
    with pytest.raises(StageError, match=text):
        shop.merge(*staged)
    assert shop.rows() == rows


def test_a_merge_needs_a_key(shop: Warehouse) -> None:
    with pytest.raises(DestinationError, match="no key to merge by"):
        shop.to.write.merge(None, REF, [], Merge(()), shop.commit())


COLUMNS = ["filename", "file_row_number", "rowid", "t", "s", "n", "_instep_n", "select", 'a"b', "ü"]


def test_columns_may_be_called_as_names_of_ours(tmp_path: Path) -> None:
    wanted = table(ID, *(column(name, "string") for name in COLUMNS), Column("k0", parse("int32")))
    shop = Warehouse(tmp_path, wanted)
    shop.append({"id": 1, "filename": "f", "t": "t", "s": "s", "k0": 7})
    assert shop.merge({"id": 1, "t": "new", "s": "s"}, {"id": 2, "n": "n"}).inserted == 1
    met = shop.to.write.lookup_rows(REF, keys(1))
    shop.to.write.update_rows(REF, met, RowUpdate([0], met.rows, met.rows.slice(0, 0)), shop.commit())
    assert shop.rows("id", "t", "s", "n") == [(1, "new", "s", None), (2, None, None, "n")]


def test_a_staged_file_of_another_schema_changes_nothing(shop: Warehouse) -> None:
    file = stage(shop.to, REF, [{"id": 1}], only=["id"])
    with pytest.raises(DestinationError, match="name"):
        shop.to.write.append(REF, [file], shop.commit())
    assert len(shop.rows()) == 3
    assert f"{PREFIX}synced" in shop.to.write.target(REF).schema.names
