"""How a destination table differs from how it was left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.diff import LOADABLE, detail, differences


def column(name: str, kind: str = "int32", alias: str | None = None, **more: bool) -> Column:
    return Column(name, parse(kind), alias=name if alias is None else alias, **more)


ID, A, B = column("id"), column("a"), column("b", "string")
SYNCED = Column("_instep_synced", parse("timestamptz"))


def table(*columns: Column) -> Table:
    return Table("shop", "t", (*columns, SYNCED))


LEFT = table(ID, A, B)
CASES = [
    ("as it was left", LEFT, []),
    ("another order", table(B, A, ID), []),
    ("a comment", table(ID, replace(A, comment="x"), B), []),
    ("without system columns", Table("shop", "t", (ID, A, B)), []),
    ("gone", table(ID, B), [("gone", "a")]),
    ("added", table(ID, A, B, column("z", alias="")), [("added", "z")]),
    ("added, no NULL", table(ID, A, B, column("z", alias="", nullable=False)), [("required", "z")]),
    ("renamed", table(ID, column("x", alias="a"), B), [("renamed", "a")]),
    ("widened", table(ID, column("a", "int64"), B), [("widened", "a")]),
    ("retyped", table(ID, A, column("b", "int32")), [("retyped", "b")]),
    ("made anew", table(ID, column("a", "string", alias=""), B), [("replaced", "a")]),
    ("no NULL", table(ID, replace(A, nullable=False), B), [("required", "a")]),
    ("two at once", table(ID, column("x", "int64", alias="a")), [("renamed", "a"), ("widened", "a"), ("gone", "b")]),
    ("no table", None, [("table gone", "")]),
]


@pytest.mark.parametrize(("found", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_differences(found: Table | None, expected: list[tuple[str, str]]) -> None:
    assert [(d.what, d.column) for d in differences(LEFT, found, "_instep_")] == expected


def test_a_column_that_was_adopted_is_known_by_its_name() -> None:
    adopted = table(ID, column("z", alias=""))
    assert differences(adopted, adopted, "_instep_") == ()
    assert [d.what for d in differences(adopted, table(ID), "_instep_")] == ["gone"]


def test_each_answer_is_named() -> None:
    text = detail(differences(LEFT, table(ID, B), "_instep_"))
    assert text == (
        "column a is gone (approve: it is restored, with its values where they are kept, and the table is read again; "
        "reject: this table is not loaded, the others continue)"
    )
    assert "without another review" in detail(differences(LEFT, CASES[5][1], "_instep_"))


@given(st.lists(st.sampled_from([ID, A, B, column("z", alias=""), column("a", "int64")]), unique_by=lambda c: c.name))
def test_only_what_is_missing_or_other_needs_a_repair(columns: list[Column]) -> None:
    found = differences(LEFT, table(*columns), "_instep_")
    assert ({c.name for c in columns} >= {"id", "a", "b"}) == all(d.what in LOADABLE for d in found)
