"""The tree of a schema config, and patches of it."""

from __future__ import annotations

from typing import Any

import pytest
from selection_desk import PROJECT, Desk, desk

from instep.control.selection.schema_config import SchemaConfig, TableConfig, schema_config, table_columns
from instep.control.selection.schema_patch import (
    ColumnPatch,
    ConfigPatch,
    NotListed,
    Patched,
    SchemaPatch,
    TablePatch,
    patched,
    switched,
)
from instep.control.selection.selections import switch
from instep.errors import Blocked, InstepError
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.planning.naming import Naming
from instep.store.catalogs.discoveries import CachedDiscovery

__all__ = ["desk"]
NAMING = Naming(namespace="shop", default_schema="main")
KEYED = "create table person (id integer primary key, name text, email text)"


def read(desk: Desk) -> SchemaConfig | None:
    with desk.app() as app:
        return schema_config(desk.place(app), NAMING)


def tables(desk: Desk) -> dict[str, TableConfig]:
    found = read(desk)
    assert found is not None
    return {t.name: t for s in found.schemas for t in s.tables}


def patch(desk: Desk, wanted: ConfigPatch) -> Patched:
    """Applies the switches; answers what was made of the patch."""
    with desk.app() as app:
        place = desk.place(app)
        config = schema_config(place, NAMING)
        assert config is not None
        made = patched(place, config, wanted)
        switch(place, made.steps, "ann")
        return made


def one(table: str, wanted: TablePatch) -> ConfigPatch:
    return ConfigPatch({"main": SchemaPatch(tables={table: wanted})})


def columns(table: str, **wanted: ColumnPatch) -> ConfigPatch:
    return one(table, TablePatch(columns=wanted))


def test_there_is_none_before_the_first_detection(desk: Desk) -> None:
    assert read(desk) is None


def test_names_modes_and_locks(desk: Desk) -> None:
    desk.sql(KEYED)
    desk.detect()
    found = tables(desk)
    assert found["person"] == TableConfig("person", "person", True, "SOFT_DELETE", True, None)
    assert found["table_1"].sync_mode is None, "rows of a table without a key cannot be told apart"
    desk.sql("drop table table_1")
    desk.detect()
    lock = tables(desk)["table_1"].lock
    assert lock is not None
    assert lock.reason == "DELETED"


def test_tables_that_are_not_accepted_show_the_name_that_they_would_get(desk: Desk) -> None:
    desk.detect()
    desk.write("block_all")
    desk.sql('create table "a.b" (x text)')
    desk.detect()
    found = tables(desk)["a.b"]
    assert (found.enabled, found.destination.startswith("a_b_")) == (False, True)


def test_all_columns_of_a_table_with_what_locks_them(desk: Desk) -> None:
    desk.sql(KEYED)
    desk.detect()
    desk.switch("off", "main.person.email")
    with desk.app() as app:
        place = desk.place(app)
        found = table_columns(place, NAMING, ("main", "person"))
        assert found is not None
        assert table_columns(place, NAMING, ("main", "nope")) is None
    reasons = [(c.name, c.enabled, c.key, c.lock.reason if c.lock else "") for c in found]
    assert reasons == [
        ("id", True, True, "SYSTEM_COLUMN"), ("name", True, False, ""), ("email", False, False, ""),
    ]  # fmt: skip
    assert [c.name for c in tables(desk)["person"].columns] == ["email"], "the tree has those that were set"


def test_a_patched_column_stays_listed_on_or_off(desk: Desk) -> None:
    desk.detect()
    assert len(patch(desk, columns("table_1", column_1=ColumnPatch(enabled=True))).steps) == 1
    assert [(c.name, c.enabled) for c in tables(desk)["table_1"].columns] == [("column_1", True)]
    patch(desk, columns("table_1", column_1=ColumnPatch(enabled=False, hashed=False)))
    [column] = tables(desk)["table_1"].columns
    assert (column.enabled, column.hashed) == (False, False)


def test_enabled_and_hashed_are_kept_together(desk: Desk) -> None:
    desk.detect()
    patch(desk, columns("table_1", column_1=ColumnPatch(enabled=True, hashed=True)))
    [column] = tables(desk)["table_1"].columns
    assert (column.enabled, column.hashed) == (True, True)
    assert desk.reads() == {"table_1": {"#column_1", "column_2"}}


def test_what_is_so_already_is_no_choice_of_a_person(desk: Desk) -> None:
    desk.detect()
    wanted = ConfigPatch({"main": SchemaPatch(True, {"table_1": TablePatch(True)})}, handling="ALLOW_ALL")
    assert patch(desk, wanted) == Patched()


def test_a_whole_subtree_at_once(desk: Desk) -> None:
    desk.detect()
    desk.write("block_all")
    desk.sql("create table refunds (id integer primary key); alter table table_1 add column currency text")
    desk.detect()
    assert not tables(desk)["refunds"].enabled
    wanted = {
        "refunds": TablePatch(True),
        "table_1": TablePatch(True, columns={"currency": ColumnPatch(enabled=True)}),
    }
    patch(desk, ConfigPatch({"main": SchemaPatch(True, wanted)}))
    desk.detect()
    assert desk.reads() == {"refunds": {"id"}, "table_1": {"column_1", "column_2", "currency"}}


REFUSED: list[tuple[str, ConfigPatch, type[InstepError], str]] = [
    ("a schema that is not there", ConfigPatch({"man": SchemaPatch()}), NotListed, "has no schema man"),
    ("a table that is not there", one("persn", TablePatch()), NotListed, "has no table main.persn"),
    ("a column that is not there", columns("person", nam=ColumnPatch()), NotListed, "no column main.person.nam"),
    ("a key column off", columns("person", id=ColumnPatch(enabled=False)), Blocked, "in the key of its table"),
    ("another key", columns("person", name=ColumnPatch(is_primary_key=True)), InstepError, "cannot be set here"),
    ("a mode without a key", one("table_1", TablePatch(sync_mode="LIVE")), InstepError, "has no key"),
    ("locked types", ConfigPatch(type_locked=True), InstepError, "cannot be locked by this setting"),
    ("a table that is gone", one("gone", TablePatch(enabled=False)), Blocked, "is locked"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("_", "wanted", "error", "text"), REFUSED, ids=[r[0] for r in REFUSED])
def test_what_cannot_be_patched(desk: Desk, _: str, wanted: Any, error: type[InstepError], text: str) -> None:
    desk.sql(f"{KEYED}; create table gone (x text)")
    desk.detect()
    desk.sql("drop table gone")
    desk.detect(apply=False)
    with pytest.raises(error, match=text):
        patch(desk, wanted)


def test_what_is_locked_may_be_said_again(desk: Desk) -> None:
    desk.sql(KEYED)
    desk.detect()
    patch(desk, columns("person", id=ColumnPatch(enabled=True, is_primary_key=True)))
    [column] = tables(desk)["person"].columns
    assert (column.name, column.enabled, column.key) == ("id", True, True)


def test_the_file_is_named_where_it_says_otherwise(desk: Desk) -> None:
    desk.write(text=PROJECT.replace("salt:", "exclude: {columns: [main.table_1.column_2]}, salt:"))
    desk.detect()
    [column] = tables(desk)["table_1"].columns
    assert column.lock is not None
    assert "instep.yml:4" in column.lock.text
    with pytest.raises(Blocked, match=r"instep\.yml:4"):
        patch(desk, columns("table_1", column_2=ColumnPatch(enabled=True)))


def test_settings_of_a_patch(desk: Desk) -> None:
    desk.sql(KEYED)
    desk.detect()
    wanted = ConfigPatch({"main": SchemaPatch(tables={"person": TablePatch(sync_mode="HISTORY")})}, "BLOCK_ALL")
    assert patch(desk, wanted).settings == {
        "tables": {"main.person": {"history": True}}, "policy": None,
        "detect_and_propagate_schema_changes": None, "schema_change_handling": "BLOCK_ALL",
    }  # fmt: skip
    rules = "preset: PRESET, rules: [{on: [column.added], decide: review}]"
    desk.write(text=PROJECT.replace("preset: PRESET", rules))
    with pytest.raises(Blocked, match="rules of its own, which BLOCK_ALL would replace"):
        patch(desk, ConfigPatch(handling="BLOCK_ALL"))


@pytest.mark.parametrize("on", [True, False])
def test_all_tables_on_or_off_leave_columns_alone(desk: Desk, on: bool) -> None:
    desk.sql("create table table_2 (x text)")
    desk.detect()
    patch(desk, columns("table_1", column_1=ColumnPatch(enabled=False)))
    desk.switch("off", "main.table_2")
    with desk.app() as app:
        place = desk.place(app)
        switch(place, switched(place, on), "ann")
    found = tables(desk)
    assert {t.enabled for t in found.values()} == {on}
    assert [c.name for c in found["table_1"].columns] == ["column_1"], "columns that nobody touched stay unlisted"
    assert read(desk).schemas[0].enabled is on  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_tables(desk: Desk) -> None:
    """Nothing here may take the square of their number."""
    column = Column("id", parse("int64"), key=1, id="1"), Column("v", parse("string"), id="2")
    catalog = Catalog.of(Table("main", f"t{n:05}", column, id=str(n)) for n in range(10_000))
    with desk.app() as app:
        app.store.discoveries.save("shop", CachedDiscovery(catalog, "f"))
        for on in (False, True, False):
            place = desk.place(app)
            switch(place, switched(place, on), "ann")
        config = schema_config(desk.place(app), NAMING)
        assert config is not None
        wanted = {t.name: TablePatch(True, columns={"v": ColumnPatch(False)}) for t in config.schemas[0].tables}
        made = patched(desk.place(app), config, ConfigPatch({"main": SchemaPatch(True, wanted)}))
    assert (len(config.schemas[0].tables), len(made.steps)) == (10_000, 20_001)
