"""Switches: where their object is now, and what they make of a selection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import Int, String
from instep.schema.changes.describe import Change, ColumnAdded, ColumnRetyped, SchemaAdded, TableAdded
from instep.schema.policy.presets import PRESETS
from instep.schema.selection.overrides import Switch, chosen, handling, located, moves, sides, with_switches
from instep.schema.selection.selection import Selection, column_is_on, hashed, is_on


def column(name: str, id: str | None = None) -> Column:
    return Column(name, String(), id=id)


def catalog(name: str = "t", id: str | None = "10", **columns: str | None) -> Catalog:
    return Catalog.of([Table("public", name, tuple(column(c, i) for c, i in columns.items()), id=id)])


SWITCH = Switch("public", "t", "email", hashed=True, table_id="10", column_id="3", identity="db")
PLACES: list[tuple[str, Catalog, str, str]] = [
    ("as it was", catalog(email="3"), "db", "public.t.email"),
    ("renamed", catalog(mail="3"), "db", "public.t.mail"),
    ("its name is another column's now", catalog(mail="3", email="4"), "db", "public.t.mail"),
    ("its table renamed", catalog("people", email="3"), "db", "public.people.email"),
    ("dropped and made again", catalog(email="7"), "db", "public.t.email"),
    ("its table made again, with other columns' ids", catalog(id="11", note="3", email="4"), "db", "public.t.email"),
    ("on another server ids say nothing", catalog(note="3", email="4"), "other", "public.t.email"),
    ("gone", catalog(note="4"), "db", ""),
    ("its table is gone", catalog("other", id="12", email="3"), "db", ""),
    ("a source without ids", catalog(id=None, email=None), "db", "public.t.email"),
]


@pytest.mark.parametrize(("name", "now", "identity", "expected"), PLACES, ids=[p[0] for p in PLACES])
def test_where_the_object_is(name: str, now: Catalog, identity: str, expected: str) -> None:
    found = located(SWITCH, now, identity)
    assert (f"{found[0].path}.{found[1].name}" if found and found[1] else "") == expected


def test_a_rename_that_is_not_accepted_yet_has_a_name_on_either_side() -> None:
    made = sides(Selection(), [SWITCH], catalog(mail="3", email="9"), catalog(email="3"), "db")
    assert (made.now.masked, made.before.masked) == (frozenset({"public.t.mail"}), frozenset({"public.t.email"}))
    assert hashed(made.now, ("public", "t"), "mail")
    assert not hashed(made.now, ("public", "t"), "email")


def test_what_is_gone_stays_switched_under_its_name() -> None:
    off = replace(SWITCH, column="", enabled=False, hashed=None)
    assert with_switches(Selection(), [off], Catalog(), "db").off == {"public.t"}


def test_without_switches_both_sides_are_the_file_s() -> None:
    made = sides(Selection(), [], Catalog(), Catalog())
    assert made.now is made.before


def test_moves_are_those_with_another_name_or_other_ids() -> None:
    assert moves([SWITCH], catalog(email="3"), "db") == []
    [(old, new)] = moves([SWITCH], catalog(mail="3"), "db")
    assert (old, new.column, new.column_id) == (SWITCH, "mail", "3")
    [(_, new)] = moves([SWITCH], catalog(id="50", email="51"), "other")
    assert (new.column, new.table_id, new.column_id, new.identity) == ("email", "50", "51", "other")
    assert moves([SWITCH, Switch("public", enabled=False)], Catalog(), "db") == []


def test_switches_outrank_the_file() -> None:
    file = Selection(on=frozenset({"public.t"}), off=frozenset({"public.t.email"}))
    choices = [Switch("public", "t", enabled=False), Switch("public", "t", "email", enabled=True)]
    made = with_switches(file, choices, catalog(email="3"))
    table = catalog(email="3").tables[0]
    assert is_on(made, table) == (False, "switched off")
    assert column_is_on(made, table, table.columns[0]) == (True, "switched on")


def test_a_schema_that_is_off_outranks_a_table_that_is_on() -> None:
    made = with_switches(Selection(), [Switch("public", enabled=False), Switch("public", "t", enabled=True)])
    assert is_on(made, catalog(email="3").tables[0]) == (False, "the schema public is switched off")


MAIL, REF = column("mail"), ("public", "t")
CHOSEN = Selection(on=frozenset({"public.t", "public.t.mail", "public.t.note"}), masked=frozenset({"public.t.mail"}))
SAID: list[tuple[str, Change, str | None]] = [
    ("a table", TableAdded(catalog().tables[0]), "on"),
    ("another table", TableAdded(catalog("u").tables[0]), None),
    ("the schema of a table", SchemaAdded("public"), "on"),
    ("another schema", SchemaAdded("sales"), None),
    ("a column", ColumnAdded(REF, column("note"), 0), "on"),
    ("a hashed column", ColumnAdded(REF, MAIL, 0), "hashed"),
    ("another column", ColumnAdded(REF, column("city"), 0), None),
    ("text instead of a number", ColumnRetyped(REF, replace(MAIL, type=Int(32)), MAIL), "hashed"),
    ("a number instead of text", ColumnRetyped(REF, MAIL, replace(MAIL, type=Int(32))), None),
]


@pytest.mark.parametrize(("name", "change", "expected"), SAID, ids=[s[0] for s in SAID])
def test_what_a_person_has_said_about_a_change(name: str, change: Change, expected: str | None) -> None:
    assert chosen(CHOSEN, change, catalog()) == expected


def test_hashing_alone_lets_nothing_in() -> None:
    only = Selection(masked=frozenset({"public.t.mail"}))
    assert chosen(only, ColumnAdded(REF, MAIL, 0), catalog()) is None


def test_every_preset_has_a_handling() -> None:
    assert {handling(p) for p in PRESETS} == {"ALLOW_ALL", "ALLOW_COLUMNS", "BLOCK_ALL"}
    assert [handling(p) for p in ("allow_all", "allow_columns", "block_all")] == [
        "ALLOW_ALL", "ALLOW_COLUMNS", "BLOCK_ALL",
    ]  # fmt: skip
