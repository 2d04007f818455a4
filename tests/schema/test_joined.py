"""What becomes of a shared table when one shard changes its own: case by case, and laws over random shards."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import PLAIN, table

from instep.errors import IllegalChange
from instep.schema.catalog.catalog import Table
from instep.schema.catalog.promotion import promote
from instep.schema.changes.describe import ColumnAdded, ColumnRemoved, ColumnRenamed, TableAdded
from instep.schema.planning.shards import (
    ShardPlanInputs,
    compare,
    first_shard_table,
    join,
    lacking,
    seen,
    unknown_columns,
)
from instep.schema.planning.step import RewriteColumn, StepChange, step

SHARD = "_shard"
ID = "id:int32!"


def whole(*columns: str) -> Table:
    return first_shard_table(table("t", *columns), SHARD)


def said(made: Table) -> str:
    return ", ".join(f"{c.name} {c.type}" for c in made.columns[1:])


CASES: list[tuple[object, ...]] = [
    ("a new column", [ID], [ID], [ID], [ID, "n"], [], "id int32, n int32", ["column.added"], []),
    ("one that is there", [ID, "n"], [ID, "n"], [ID], [ID, "n"], [], "id int32, n int32", [], []),
    ("a narrower one", [ID, "n:int64"], [ID, "n:int64"], [ID], [ID, "n"], [], "id int32, n int64", [], []),
    ("a wider one", [ID, "n"], [ID, "n"], [ID], [ID, "n:int64"], [], "id int32, n int64", ["column.widened"], []),
    ("dropped by one", [ID, "n"], [ID, "n"], [ID, "n"], [ID], [], "id int32, n int32", [], []),
    ("dropped by the last", [ID, "n"], [ID], [ID, "n"], [ID], [], "id int32", ["column.removed"], []),
    ("renamed alone", [ID, "n"], [ID], [ID, "n"], [ID, "m"], ["n", "m"], "id int32, m int32", ["column.renamed"], []),
    ("renamed, others stay", [ID, "n"], [ID, "n"], [ID, "n"], [ID, "m"], ["n", "m"], "id int32, n int32, m int32",
     ["column.added"], [("n", "m")]),
    ("renamed from a wider one", [ID, "n:string"], [ID, "n:string"], [ID, "n"], [ID, "m"], ["n", "m"],
     "id int32, n string, m string", ["column.added"], [("n", "m")]),
    ("renamed after others", [ID, "n", "m"], [ID, "m"], [ID, "n"], [ID, "m"], ["n", "m"], "id int32, m int32",
     ["column.removed"], [("n", "m")]),
]  # fmt: skip


def _steps(renamed: list[str], after: Table, before: Table) -> list[StepChange]:
    if not renamed:
        return [ColumnAdded(after.ref, after.columns[-1], 1)]
    return [ColumnRenamed(after.ref, before.by_name[renamed[0]], after.by_name[renamed[1]])]


@pytest.mark.parametrize(("name", "there", "other", "before", "wanted", "renamed", "after", "kinds", "moves"), CASES)
def test_what_becomes_of_the_table(
    name: str, there: list[str], other: list[str], before: list[str], wanted: list[str], renamed: list[str], after: str,
    kinds: list[str], moves: list[tuple[str, str]],
) -> None:  # fmt: skip
    mine, made = table("t", *before), table("t", *wanted)
    inputs = ShardPlanInputs(whole(*there), {"b": table("t", *other)}, mine, SHARD, PLAIN)
    joined = join(inputs, [step(made.ref, c) for c in _steps(renamed, made, mine)], made)
    assert (said(joined.after), [s.change.kind for s in joined.steps], list(joined.moves)) == (after, kinds, moves)


def test_the_first_shard_makes_the_table() -> None:
    made = table("t", ID, "n")
    joined = join(ShardPlanInputs(None, {}, None, SHARD, PLAIN), [step(made.ref, TableAdded(made))], made)
    assert joined.after.key == (SHARD, "id")
    assert [c.name for c in joined.after.columns] == [SHARD, "id", "n"]
    assert first_shard_table(table("t", "n"), SHARD).key == ()


REFUSED = [
    ("another key", [ID, "n"], ["id:int32", "n:int32!"], "has the key \\(n\\) here and \\(id\\) in shard b"),
    ("no common type in place", [ID, "n:date"], [ID, "n:int32"], "n of table s.t is int32 here and date in shard b"),
    ("wider, not in place", [ID, "n:int32"], [ID, "n:decimal(20,2)"], "cannot become decimal\\(20,2\\)"),
]


@pytest.mark.parametrize(("name", "other", "wanted", "why"), REFUSED)
def test_what_others_would_lose_is_refused(name: str, other: list[str], wanted: list[str], why: str) -> None:
    inputs = ShardPlanInputs(whole(*other), {"b": table("t", *other)}, None, SHARD, PLAIN)
    made = table("t", *wanted)
    with pytest.raises(IllegalChange, match=why):
        join(inputs, [step(made.ref, TableAdded(made))], made)


@pytest.mark.parametrize(("others", "kinds"), [({}, ["column.rewritten"]), ({"b": table("t", ID, "n")}, [])])
def test_a_rewrite_is_for_all_or_for_none(others: dict[str, Table], kinds: list[str]) -> None:
    mine, made = table("t", ID, "n"), table("t", ID, "n:date")
    change = RewriteColumn(made.ref, mine.by_name["n"], made.by_name["n"])
    inputs = ShardPlanInputs(whole(ID, "n"), others, mine, SHARD, PLAIN)
    if not kinds:
        with pytest.raises(IllegalChange, match="give it another name"):
            join(inputs, [step(made.ref, change)], made)
    else:
        assert [s.change.kind for s in join(inputs, [step(made.ref, change)], made).steps] == kinds


def test_history_is_that_of_one_connection() -> None:
    made = table("t", ID, history=True)
    with pytest.raises(IllegalChange, match="take `history` out"):
        join(ShardPlanInputs(None, {}, None, SHARD, PLAIN), [step(made.ref, TableAdded(made))], made)


def test_what_a_shard_sees() -> None:
    there = whole(ID, "n:int64", "hand:date")
    assert said(seen(there, table("t", ID, "n", "gone"))).startswith("n int32")
    assert [c.name for c in unknown_columns(there, [table("t", ID), table("t", "n")], SHARD)] == ["hand"]
    assert lacking({"a": table("t", ID), "b": table("t", "n"), "c": table("t")}, "n") == ["a", "c"]


def test_tables_are_compared_by_column() -> None:
    retained = table("t", ID, "n")
    retained = replace(retained, columns=(retained.columns[0], replace(retained.columns[1], retained=True)))
    found = {c.name: c for c in compare({"a": table("t", ID, "n:int64", "m"), "b": retained})}
    assert {n: (str(c.type), c.lacking, c.differs) for n, c in found.items()} == {
        "id": ("int32", (), False), "n": ("int64", ("b",), True), "m": ("int32", ("b",), True),
    }  # fmt: skip


COLUMNS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["int32", "int64"]), max_size=4)
HISTORY = st.lists(st.tuples(st.sampled_from("xyz"), COLUMNS), min_size=1, max_size=8)


@given(HISTORY)
def test_the_table_is_the_join_of_its_shards(history: list[tuple[str, dict[str, str]]]) -> None:
    """Whatever shards do, in whatever order: the shared table has their columns and no other, and holds their types."""
    there: Table | None = None
    shards: dict[str, Table] = {}
    for shard, columns in history:
        made = table("t", ID, *(f"{n}:{kind}" for n, kind in columns.items()))
        others = {n: t for n, t in shards.items() if n != shard}
        mine = shards.get(shard)
        gone = [c for c in (mine.columns if mine else ()) if c.name not in made.by_name]
        changes: list[StepChange] = [ColumnRemoved(made.ref, c, 0) for c in gone] or [TableAdded(made)]
        there = join(
            ShardPlanInputs(there, others, mine, SHARD, PLAIN), [step(made.ref, c) for c in changes], made
        ).after
        shards[shard] = made
        names = {c.name for t in shards.values() for c in t.columns}
        assert {c.name for c in there.columns} == {SHARD, *names}
        for name in names:
            kinds = [t.by_name[name].type for t in shards.values() if name in t.by_name]
            own = there.by_name[name].type
            assert promote(own, reduce(promote, kinds)) == own
            assert all(seen(there, t).by_name[name].type == t.by_name[name].type for t in shards.values()
                       if name in t.by_name)  # fmt: skip
