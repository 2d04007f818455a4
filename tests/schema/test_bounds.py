"""Floods of new columns, and types that go back and forth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.kinds import ColumnAdded, ColumnRetyped
from instep.schema.policy.policy import Decision
from instep.schema.policy.safeguards import COLUMN_LIMIT, FLAPPING, block_flapping, limit_columns, retypes


def added(number: int, table: str = "t", rule: str = "preset allow_all") -> Decision:
    change = ColumnAdded(("s", table), Column(f"c{number}", parse("string")), number)
    return Decision(change, "apply", rule, "applied")


def actions(decisions: tuple[Decision, ...]) -> str:
    """a(pplied) or r(eview), in order."""
    return "".join(d.action[0] for d in decisions)


LIMITS = [
    ("under it", [added(n) for n in range(3)], 3, (), "aaa"),
    ("over it", [added(n) for n in range(5)], 3, (), "aaarr"),
    ("each table has its own", [added(1), added(2, "u"), added(3), added(4, "u")], 1, (), "aarr"),
    ("none at all", [added(1)], 0, (), "r"),
    ("what a person let in is not counted", [added(1, rule="review"), added(2), added(3)], 1, (), "aar"),
    ("what was selected neither", [added(1, rule="selection"), added(2)], 1, (), "aa"),
    ("what was held waits on", [added(1), added(2)], 5, (0,), "ra"),
]


@pytest.mark.parametrize(
    ("decisions", "most", "held", "expected"), [case[1:] for case in LIMITS], ids=[case[0] for case in LIMITS]
)
def test_new_columns(decisions: list[Decision], most: int, held: tuple[int, ...], expected: str) -> None:
    found = limit_columns(decisions, most, held)
    assert actions(found) == expected
    assert {d.rule for d in found if d.action == "review"} <= {COLUMN_LIMIT}


def test_a_held_column_says_why() -> None:
    assert limit_columns([added(n) for n in range(7)], 2)[-1].why == (
        "7 columns of this table are new, 2 are accepted at once: approve it, or raise max_new_columns"
    )


@given(st.lists(st.tuples(st.sampled_from("tu"), st.booleans()), max_size=30), st.integers(0, 8))
def test_no_table_gets_more_and_nothing_is_lost(columns: list[tuple[str, bool]], most: int) -> None:
    given = [added(n, t, "review" if own else "preset allow_all") for n, (t, own) in enumerate(columns)]
    found = limit_columns(given, most)
    assert [d.change for d in found] == [d.change for d in given]
    for table in "tu":
        mine = [d for d in found if d.change.table == ("s", table) and d.rule != "review"]  # type: ignore[union-attr]
        assert sum(d.applied for d in mine) == min(most, len(mine))


def catalog(type: str) -> Catalog:
    return Catalog.of([Table("s", "t", (Column("c", parse(type)),))])


def retyped(before: str, after: str, rule: str = "rule 1") -> Decision:
    change = ColumnRetyped(("s", "t"), Column("c", parse(before)), Column("c", parse(after)))
    return Decision(change, "apply", rule, "applied")


FLAPS = [
    ("once", ["int32"], "string", False),
    ("there and back", ["int32", "string"], "int32", False),
    ("and there again", ["int32", "string", "int32"], "string", True),
    ("seen already", ["int32", "string", "int32", "string"], "string", True),
    ("unchanged in between", ["int32", "int32", "string", "string", "int32", "int32"], "string", True),
    ("always another one", ["int32", "string", "date"], "boolean", False),
    ("long ago", ["int32", "string", *["int32"] * 10], "string", False),
    ("a new column", [], "string", False),
]


@pytest.mark.parametrize(("past", "now", "held"), [case[1:] for case in FLAPS], ids=[case[0] for case in FLAPS])
def test_flapping(past: list[str], now: str, held: bool) -> None:
    [found] = block_flapping([retyped("int32", now)], [catalog(t) for t in past])
    assert (found.action, found.rule == FLAPPING) == (("review", True) if held else ("apply", False))
    assert ("int32 -> string -> int32 -> string" in found.why) == held


def test_what_a_person_approved_is_applied() -> None:
    past = [catalog(t) for t in ("int32", "string", "int32")]
    [found] = block_flapping([retyped("int32", "string", "review")], past)
    assert found.applied
    assert not retypes([found])
    assert retypes([retyped("int32", "string")])
