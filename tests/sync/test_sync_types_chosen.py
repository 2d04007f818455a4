"""Types that the project file chooses for columns whose source type has no exact form, or another than is wanted."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.project.sections.tables import TableSettings
from instep.sync.detection.detect import detect_if_changed
from instep.sync.operations import set_key
from quarantined import pending_of
from sync_world import MakeWorld, World, counts, cursor

AMOUNTS = (
    "CREATE TABLE t (id int PRIMARY KEY, amount numeric, price money)",
    "INSERT INTO t VALUES (1, 1.5, 12.34), (2, 0.000000001, -1), (3, NULL, NULL)",
)
NUMBERS = {"numeric": "decimal(38,9)", "MONEY": "decimal(19,2)"}


def chosen(**types: str) -> TableSettings:
    return TableSettings(types=types)


@pytest.fixture(params=["iceberg", "duckdb", "delta"])
def world(make_world: MakeWorld, request: pytest.FixtureRequest) -> World:
    made = make_world()
    other: Any = {
        "duckdb": lambda: DuckDbDestination(
            DuckDbConfig.resolved(name="warehouse", path=str(made.folder / "shop.duckdb"))
        ),
        "delta": lambda: DeltaDestination(DeltaConfig.resolved(name="warehouse", warehouse=str(made.folder / "delta"))),
    }.get(request.param)
    made.destination = other() if other else made.destination
    return made


def held(world: World) -> list[tuple[str, str | None, str]]:
    return sorted((e.column, e.original, e.reason) for e in pending_of(world.context, idle=True))


def test_source_types_are_chosen_for_all_columns_of_them(world: World) -> None:
    world.types = NUMBERS
    world.run(*AMOUNTS)
    report = world.sync()
    assert not any("as text" in note for note in report.notes)
    assert world.schema("t") == "id int32!, amount decimal(38,9), price decimal(19,2)"
    rows = [(1, Decimal("1.5"), Decimal("12.34")), (2, Decimal("0.000000001"), -1), (3, None, None)]
    assert world.rows("t") == rows
    assert held(world) == []
    world.run("UPDATE t SET amount = 7 WHERE id = 3")
    assert counts(world.sync(), "t")[1:] == (0, 1, 0, 0)
    assert world.rows("t", "amount")[-1] == (Decimal(7),)
    assert world.reviews() == {}


def test_values_that_do_not_fit_are_held(world: World) -> None:
    world.settings["t"] = chosen(amount="decimal(10,2)")
    world.run(AMOUNTS[0], "INSERT INTO t VALUES (1, 1.234, 1), (2, 'NaN', 1), (3, 1e20, 1), (4, -99999999.99, 1)")
    assert counts(world.sync(), "t") == (4, 4, 0, 0, 3)
    assert world.rows("t", "amount") == [(Decimal("-99999999.99"),), (None,), (None,), (None,)]
    assert [(column, original) for column, original, _ in held(world)] == [
        ("amount", "1.234"), ("amount", "100000000000000000000"), ("amount", "NaN")
    ]  # fmt: skip
    assert counts(world.sync(), "t")[1:4] == (0, 0, 0)


def test_a_column_that_is_renamed_keeps_its_type(world: World) -> None:
    world.settings["t"] = chosen(amount="decimal(38,9)")
    world.run(*AMOUNTS)
    world.sync()
    world.run("ALTER TABLE t RENAME amount TO total")
    world.sync()
    assert world.schema("t") == "id int32!, total decimal(38,9), price string"
    world.sync()
    assert world.rows("t", "id", "total") == [(1, Decimal("1.5")), (2, Decimal("0.000000001")), (3, None)]


def test_a_type_that_is_chosen_by_source_type_goes_with_that_type(world: World) -> None:
    world.settings["t"] = chosen(**{"numeric*": "decimal(38,9)"})
    world.run(*AMOUNTS)
    world.sync()
    world.run("ALTER TABLE t ALTER amount TYPE text USING 'about ' || amount")
    world.sync()
    assert world.schema("t").split(", ")[1] == "amount string"
    assert sorted(world.rows("t", "amount"), key=str)[:2] == [("about 0.000000001",), ("about 1.5",)]
    assert held(world) == []


def test_a_type_that_is_chosen_after_the_first_load_is_stored_once_the_table_is_built_anew(world: World) -> None:
    world.run(*AMOUNTS)
    world.sync()
    world.settings["t"] = chosen(amount="decimal(38,9)")
    report = world.sync()
    assert "table set-key public.t id --rebuild" in " ".join(report.notes)
    assert world.rows("t", "amount") == [("0.000000001",), ("1.5",), (None,)]
    set_key.carry_out(world.context, set_key.prepare(world.context, "public.t", ("id",), "rebuild"), ("*",))
    world.sync()
    assert world.rows("t", "id", "amount") == [(1, Decimal("1.5")), (2, Decimal("0.000000001")), (3, None)]
    assert world.sync().notes == ()


def test_a_type_that_is_no_longer_chosen_gives_the_source_s_text(world: World) -> None:
    world.settings["t"] = chosen(amount="decimal(38,9)")
    world.run(*AMOUNTS)
    world.sync()
    del world.settings["t"]
    world.sync()
    world.sync()
    assert world.rows("t", "amount") == [("0.000000001",), ("1.5",), (None,)]


def test_columns_that_are_text_for_want_of_a_type_are_named(make_world: MakeWorld) -> None:
    world = make_world()
    world.run(*AMOUNTS, "CREATE TABLE u (id int PRIMARY KEY, amount numeric, span interval)")
    notes = world.preview().detection.notes
    assert notes == (
        "public.u.span lands as text: interval is kept as ISO 8601 text",
        "public.t.price lands as text: money is kept as the text of its amount; to choose another type, set "
        "`types: {money: decimal(38,9)}` in instep.yml",
        "public.t.amount, public.u.amount land as text: numeric without a precision has no fixed scale; to choose "
        "another type, set `types: {numeric: decimal(38,9)}` in instep.yml",
    )
    world.sync()
    assert world.sync().notes == ()


def test_a_name_that_fits_nothing_is_told(make_world: MakeWorld) -> None:
    world = make_world()
    context = world.context
    world.settings["t"] = chosen(amont="decimal(38,9)")
    world.run(*AMOUNTS)
    notes = detect_if_changed(replace(context, tables_named={"public.t": ()})).notes
    assert "public.t: `types` names amont, which is neither a column nor a type of it (did you mean amount?)" in notes


def test_tables_with_a_cursor(make_world: MakeWorld) -> None:
    world = make_world()
    world.settings["t"], world.types = cursor("at"), NUMBERS
    world.run("CREATE TABLE t (id int PRIMARY KEY, at int, v numeric)", "INSERT INTO t VALUES (1, 1, 1.5)")
    world.sync()
    world.run("INSERT INTO t VALUES (2, 2, 2.25)")
    assert counts(world.sync(), "t")[1] == 1
    assert world.rows("t", "v") == [(Decimal("1.5"),), (Decimal("2.25"),)]
    assert world.differing() == {}


def test_mariadb_tinyint_is_a_number_if_it_is_chosen(make_world: MakeWorld) -> None:
    world = make_world("mysql")
    world.types = {"tinyint(*)": "int16", "decimal(65,*)": "decimal(38,9)"}
    world.run("CREATE TABLE t (id int PRIMARY KEY, level tinyint(1), n decimal(65,20))")
    world.run("INSERT INTO t VALUES (1, 2, 1.5), (2, 1, 1e40), (3, 0, 0)")
    assert counts(world.sync(), "t") == (3, 3, 0, 0, 1)
    assert world.rows("t", "id", "level", "n") == [(1, 2, Decimal("1.5")), (2, 1, None), (3, 0, Decimal(0))]


def test_sqlite_columns_by_name(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.settings["t"] = chosen(v="decimal(10,2)", d="date")
    world.run("CREATE TABLE t (id int PRIMARY KEY, v text, d text)")
    world.run("INSERT INTO t VALUES (1, '1.50', '2024-02-29'), (2, 'x', '2024-02-30')")
    assert counts(world.sync(), "t") == (2, 2, 0, 0, 2)
    assert [str(v) for row in world.rows("t") for v in row] == ["1", "1.50", "2024-02-29", "2", "None", "None"]
