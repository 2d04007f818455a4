"""The accepted catalog after decisions, some of them held."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import pairs_of_catalogs
from world import catalog, column, table

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnRemoved,
    SchemaAdded,
    SchemaRemoved,
    TableAdded,
    TableRemoved,
    key,
)
from instep.schema.changes.diff import bare, diff
from instep.schema.planning.accept import accept, defer_blocked, lineage
from instep.schema.policy.policy import Decision, Policy, Rule
from instep.schema.policy.removal import decide_all

DROP = Policy(modifiers={"removed": "drop"})


def decided(before: Catalog, now: Catalog, policy: Policy) -> tuple[Decision, ...]:
    decisions, _ = decide_all(diff(before, now), policy)
    return defer_blocked(decisions, before)


def taken(before: Catalog, now: Catalog, policy: Policy) -> Catalog:
    return accept(decided(before, now, policy), before, now)


def show(column: Column) -> str:
    """`name:type`, with R for a retained one and ! in the key."""
    return f"{column.name}:{column.type}" + "R" * column.retained + "!" * bool(column.key)


def t(*columns: str | Column, **more: object) -> Table:
    return table("t", *columns, **{"oid": "9", **more})  # type: ignore[arg-type]


def held(*kinds: str) -> Policy:
    return Policy(rules=(Rule(kinds, "review"),))


KEEP = Policy()
COMES_OR_GOES = (SchemaAdded, SchemaRemoved, TableAdded, TableRemoved, ColumnAdded, ColumnRemoved)
GONE = column("x", retained=True, id="7")
CASES = [
    ("retain", t("a:int32#1", "b:int32#2"), t("a:int32#1"), KEEP, ["a:int32", "b:int32R"]),
    ("drop", t("a:int32#1", "b:int32#2"), t("a:int32#1"), DROP, ["a:int32"]),
    ("widened", t("a:int32#1"), t("a:int64#1"), KEEP, ["a:int64"]),
    ("narrowed: wider kept", t("a:int64#1"), t("a:int32#1"), KEEP, ["a:int64"]),
    ("retyped: held", t("a:int32#1"), t("a:date#1"), KEEP, ["a:int32"]),
    ("swap", t("a:int32#1", "b:string#2"), t("b:int32#1", "a:string#2"), KEEP, ["b:int32", "a:string"]),
    ("key follows its rename", t("a:int32#1!"), t("z:int32#1!"), KEEP, ["z:int32!"]),
    ("added in its place", t("a:int32#1", "c:int32#3"), t("a:int32#1", "b:int32#4", "c:int32#3"), KEEP,
     ["a:int32", "b:int32", "c:int32"]),
    ("reordered", t("a:int32#1", "b:int32#2"), t("b:int32#2", "a:int32#1"), KEEP, ["b:int32", "a:int32"]),
    ("undropped", t("a:int32#1", GONE), t("a:int32#1", "x:int32#8"), KEEP, ["a:int32", "x:int32"]),
    ("undropped wider", t("a:int32#1", GONE), t("a:int32#1", "x:int64#8"), KEEP, ["a:int32", "x:int64"]),
    ("versioned", t("a:int32#1", GONE), t("a:int32#1", "x:string#8"), KEEP, ["a:int32", "x__v1:int32R", "x:string"]),
    ("versioned again", t(GONE, column("x__v1", retained=True), "a:int32#1"), t("a:int32#1", "x:date#8"), KEEP,
     ["x__v2:int32R", "x__v1:int32R", "a:int32", "x:date"]),
    ("taken by a rename", t("a:int32#1", GONE), t("x:int32#1"), KEEP, ["x:int32", "x__v1:int32R"]),
    ("undropped by id, renamed", t("a:int32#1", GONE), t("a:int32#1", "y:int32#7"), KEEP, ["a:int32", "y:int32"]),
    ("held rename, applied widening", t("a:int32#1"), t("z:int64#1"), held("column.renamed"), ["a:int64"]),
    ("held removal blocks the addition", t("a:int32#1"), t("a:string#2"), held("column.removed"), ["a:int32"]),
    ("half a swap is no swap", t("a:int32#1", "b:string#2"), t("b:int32#1", "a:string#2"),
     Policy(rules=(Rule(("column.renamed",), "review", ("s.t.b",)),)), ["a:int32", "b:string"]),
    ("a chain waits for its head", t("a:int32#1", "b:string#2"), t("b:int32#1"), held("column.removed"),
     ["a:int32", "b:string"]),
    ("key removed: held with its column", t("a:int32#1!", "b:int32#2"), t("b:int32#2"), KEEP, ["a:int32!", "b:int32"]),
    ("nothing applied", t("a:int32#1", "b:int32#2"), t("z:date#1"), Policy(preset="approve"), ["a:int32", "b:int32"]),
]  # fmt: skip


@pytest.mark.parametrize(("before", "now", "policy", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_columns(before: Table, now: Table, policy: Policy, expected: list[str]) -> None:
    found = taken(catalog(before), catalog(now), policy).by_ref["s", "t"]
    assert [show(c) for c in found.columns] == expected


def test_what_cannot_be_applied_yet_is_said_so() -> None:
    before, now = catalog(t("a:int32#1")), catalog(t("a:string#2"))
    (removed, added) = decided(before, now, held("column.removed"))
    assert (removed.action, added.action, added.effect) == ("review", "ignore", "waiting")
    assert "'a' is still used" in added.why


def test_aliases_stay_but_for_what_is_renamed() -> None:
    before = catalog(t(column("a:int32#1", alias="a_1"), column("b:int32#2", alias="b_1"), alias="shop"))
    found = taken(before, catalog(t("a:int64#1", "z:int32#2")), KEEP).by_ref["s", "t"]
    assert [c.alias for c in found.columns] == ["a_1", ""]
    assert found.alias == "shop"


def test_bookkeeping_is_refreshed_for_what_is_unchanged() -> None:
    before = catalog(t(column("a", native="int"), column("b", native="int")))
    now = catalog(t(column("a#", id="4", native="integer", name="a"), column("b:date", id="5", native="date")))
    found = taken(before, now, KEEP).by_ref["s", "t"]
    assert [(c.id, c.native, str(c.type)) for c in found.columns] == [("4", "integer", "int32"), ("5", "int", "int32")]


def test_a_held_column_keeps_its_identity() -> None:
    before, now = catalog(t("a:int32#1", "b:int32#2")), catalog(t("a:int32#1", "b:string#7"))
    found = taken(before, now, Policy(preset="approve")).by_ref["s", "t"]
    assert [c.id for c in found.columns] == ["1", "2"]


def test_the_cursor_follows_its_rename() -> None:
    before, now = catalog(t("a:int32#1", cursor="a")), catalog(t("z:int32#1", cursor="z"))
    assert taken(before, now, KEEP).by_ref["s", "t"].cursor == "z"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(KEEP, {"t": True, "u": False}), (DROP, {"u": False}), (Policy(preset="approve"), {"t": False, "u": False})],
)
def test_a_table_that_is_gone(policy: Policy, expected: dict[str, bool]) -> None:
    before = catalog(table("t", "a", oid="1"), table("u", "a", oid="2"))
    found = taken(before, catalog(table("u", "a", oid="2")), policy)
    assert {x.name: x.retained for x in found.tables} == expected


def test_a_table_that_returns_is_undropped_with_its_columns() -> None:
    kept = catalog(replace(t("a:int32#1", "b:int32#2", "c:int32#3"), retained=True, alias="shop"))
    now = catalog(t("a:int32#1", "b:date#4", oid="12"))
    found = taken(kept, now, KEEP).by_ref["s", "t"]
    assert (found.retained, found.id, found.alias) == (False, "12", "shop")
    assert [show(c) for c in found.columns] == ["a:int32", "b__v1:int32R", "c:int32R", "b:date"]


def test_a_table_that_returns_with_another_key_is_another_table() -> None:
    kept = catalog(replace(t("a:int32#1!"), retained=True, alias="t"))
    found = taken(kept, catalog(t("a:int32#1", oid="12")), KEEP)
    assert {x.name: (x.retained, x.alias) for x in found.tables} == {"t__v1": (True, ""), "t": (False, "")}


def test_a_table_under_a_name_that_is_held_waits() -> None:
    before = catalog(table("t", "a", oid="1"), table("u", "a", oid="2"))
    policy = held("table.removed")
    found = taken(before, catalog(table("t", "a", oid="2")), policy)
    assert {x.name: x.id for x in found.tables} == {"t": "1", "u": "2"}


def test_a_table_of_a_schema_that_is_not_accepted_waits() -> None:
    now = catalog(replace(t("a"), schema="new"))
    policy = Policy(rules=(Rule(("schema.added",), "review"),))
    decisions = decided(Catalog(), now, policy)
    assert accept(decisions, Catalog(), now) == Catalog()
    assert "schema 'new' is not accepted" in decisions[1].why


def test_a_schema_of_which_no_table_is_accepted_waits_for_one() -> None:
    now = catalog(replace(t("a"), schema="new"))
    (schema, _) = decided(Catalog(), now, Policy(rules=(Rule(("table.added",), "review"),)))
    assert (schema.action, schema.effect, schema.why) == ("ignore", "waiting", "no table of schema 'new' is accepted")
    (schema, added) = decided(Catalog(), now, KEEP)
    assert schema.applied
    assert added.applied


def test_a_column_of_a_table_that_is_not_accepted_waits_for_it() -> None:
    added = [TableAdded(t("a")), ColumnAdded(("s", "t"), column("b"), 1)]
    decisions, _ = decide_all(added, KEEP, explicit=lambda c: "rejected" if isinstance(c, TableAdded) else "approved")
    (_, waits) = defer_blocked(decisions, Catalog())
    assert (waits.action, waits.effect, waits.why) == ("ignore", "", "table 's.t' is not accepted")
    decisions, _ = decide_all(added, held("table.added"))
    assert [(d.action, d.effect) for d in defer_blocked(decisions, Catalog())] == [
        ("review", ""),
        ("ignore", "waiting"),
    ]


def test_a_schema_whose_tables_stay_is_not_removed() -> None:
    before = catalog(t("a"))
    (_, schema) = decided(before, Catalog(), held("table.removed"))
    assert (schema.action, schema.effect) == ("ignore", "waiting")
    assert schema.why == "the removal of a table of schema 's' is not accepted"


def test_a_held_replacement_changes_nothing() -> None:
    before, now = catalog(t("a:int32#1")), catalog(t("b:int32#1", oid="10"))
    assert taken(before, now, held("table.replaced")) == before


def test_lineage_tells_where_everything_went() -> None:
    before, now = catalog(t("a:int32#1", "b:int32#2", GONE)), catalog(replace(t("x:int32#1"), name="u"))
    went = lineage(decided(before, now, DROP), before)
    ref, new = ("s", "t"), ("s", "u")
    assert went == {(ref, ""): (new, ""), (ref, "a"): (new, "x"), (ref, "x"): (new, "x__v1")}


@given(pairs_of_catalogs())
def test_everything_approved_and_dropped_is_the_source(two: tuple[Catalog, Catalog]) -> None:
    before, now = two
    everything, _ = decide_all(diff(before, now), DROP, explicit=lambda change: "approved")
    assert bare(accept(everything, before, now)) == bare(now)


@given(pairs_of_catalogs(), st.lists(st.booleans(), min_size=40, max_size=40))
def test_what_comes_or_goes_once_is_not_found_again(two: tuple[Catalog, Catalog], answers: list[bool]) -> None:
    """Whatever else is rejected; so nothing that was approved is asked again."""
    before, now = two
    answer = {key(c): answers[n % 40] for n, c in enumerate(diff(before, now))}
    decisions, _ = decide_all(
        diff(before, now), DROP, explicit=lambda c: "approved" if answer.get(key(c)) else "rejected"
    )
    done = defer_blocked(decisions, before)
    again = {key(c) for c in diff(accept(done, before, now), now)}
    applied = [d.change for d in done if d.applied and isinstance(d.change, COMES_OR_GOES)]
    assert [change for change in applied if key(change) in again] == []


@given(pairs_of_catalogs())
def test_nothing_approved_is_nothing_changed(two: tuple[Catalog, Catalog]) -> None:
    before, now = two

    def no(change: Change) -> str:
        return "rejected"

    nothing, _ = decide_all(diff(before, now), DROP, explicit=no)  # type: ignore[arg-type]
    found = accept(nothing, before, now)
    assert {x.ref: sorted(show(c) for c in x.columns) for x in found.tables} == {
        x.ref: sorted(show(c) for c in x.columns) for x in before.tables
    }
