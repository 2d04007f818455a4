"""From a detection to the destination, case by case."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from strategies import catalogs
from world import ICEBERG, NAMING, PLAIN, World, catalog, column, table

from instep.errors import SchemaError, StalePlan
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import Json, parse
from instep.schema.changes.diff import diff
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.naming import assign
from instep.schema.planning.plan import (
    FORMAT_VERSION,
    Plan,
    check_base,
    desired,
    plan,
    plan_from_dict,
    plan_to_dict,
    unnamed_drops,
)
from instep.schema.policy.policy import Policy

DEFAULT = Policy()
DROP = Policy("dropping", modifiers={"removed": "drop"})
T = ("a:int32#1", "b:int32#2", "c:int32#3")


def kinds(made: Plan) -> list[str]:
    return [s.change.kind for s in made.steps]


def after(
    before: Table, source: Table, *, policy: Policy = DEFAULT, capabilities: Capabilities = ICEBERG
) -> tuple[World, Plan]:
    world = World(capabilities, policy)
    world.sync(catalog(before))
    made = world.sync(catalog(source))
    assert not world.plan(catalog(source)).steps, "a second detection must find nothing to do"
    return world, made


RENAMED, PARKED = "column.renamed", ["column.renamed"] * 3
CASES = [
    # name, columns before, columns now, kinds of steps, where values are: column -> the name they were written under
    ("rename", T, ("z:int32#1", *T[1:]), [RENAMED], {"z": "a", "b": "b", "c": "c"}),
    ("swap", T, ("b:int32#1", "a:int32#2", T[2]), [RENAMED] * 2, {"b": "a", "a": "b", "c": "c"}),
    ("chain", T, ("b:int32#1", "c:int32#2", "d:int32#3"), [RENAMED] * 3, {"b": "a", "c": "b", "d": "c"}),
    ("cycle of three", T, ("b:int32#1", "c:int32#2", "a:int32#3"), [RENAMED] * 3, {"b": "a", "c": "b", "a": "c"}),
    ("case only", T, ("A:int32#1", *T[1:]), [RENAMED], {"A": "a", "b": "b", "c": "c"}),
    ("widen", T, ("a:int64#1", *T[1:]), ["column.widened"], {"a": "a", "b": "b", "c": "c"}),
    ("narrow", T, ("a:int16#1", *T[1:]), [], {"a": "a", "b": "b", "c": "c"}),
    ("rename and widen", T, ("z:int64#1", *T[1:]), [RENAMED, "column.widened"], {"z": "a", "b": "b", "c": "c"}),
    ("add", T, (*T, "d:string#4"), ["column.added"], {"a": "a", "b": "b", "c": "c", "d": "d"}),
    ("retain", T, T[1:], [], {"a": "a", "b": "b", "c": "c"}),
    (
        "drop and add again with another type",
        T,
        (*T[1:], "a:string#4"),
        [RENAMED, "column.added"],
        {"a__v1": "a", "a": "a", "b": "b", "c": "c"},
    ),
    (
        "drop and add again with a fitting type",
        T,
        (*T[1:], "a:int32#4"),
        ["column.recorded"],
        {"a": "a", "b": "b", "c": "c"},
    ),
    (
        "a retained name taken by a rename",
        T,
        ("a:int32#2", T[2]),
        [RENAMED] * 2,
        {"a__v1": "a", "a": "b", "c": "c"},
    ),
]


@pytest.mark.parametrize("capabilities", [ICEBERG, PLAIN], ids=lambda c: c.name)
@pytest.mark.parametrize(("before", "now", "steps", "values"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_columns(
    before: tuple[str, ...], now: tuple[str, ...], steps: list[str], values: dict[str, str], capabilities: Capabilities
) -> None:
    world, made = after(table("t", *before, oid="9"), table("t", *now, oid="9"), capabilities=capabilities)
    assert world.values() == values
    extra = len(made.steps) - len(steps)
    assert sorted(kinds(made)) == sorted(steps + [RENAMED] * extra)
    assert extra == 0 or capabilities is PLAIN, "only names that must be free first are parked"


def test_a_cycle_is_parked_where_names_change_one_by_one() -> None:
    _, made = after(
        table("t", *T, oid="9"), table("t", "b:int32#1", "c:int32#2", "a:int32#3", oid="9"), capabilities=PLAIN
    )
    moves = [(s.change.before.name, s.change.after.name) for s in made.steps]  # type: ignore[union-attr]
    assert moves == [("a", "_instep_parked_1"), ("c", "a"), ("b", "c"), ("_instep_parked_1", "b")]


def test_order_is_drops_renames_alterations_additions() -> None:
    source = table("t", "b:int32#1", "c:int64#3", "d:int32#4", oid="9")
    world, made = after(table("t", *T, oid="9"), source, policy=DROP)
    assert kinds(made) == ["column.removed", RENAMED, "column.widened", "column.added"]
    assert world.values() == {"b": "a", "c": "c", "d": "d"}


def test_a_drop_names_its_object_and_the_rule_that_consented() -> None:
    _, made = after(table("t", *T, oid="9"), table("t", *T[1:], oid="9"), policy=DROP)
    (step,) = made.steps
    assert (step.destructive, step.object, step.reversible) == (True, "lake.t.a", True)
    assert step.consent == "preset allow_all"
    assert unnamed_drops(made) == ()
    alone = replace(made, steps=(replace(step, consent=""),))
    assert [s.object for s in unnamed_drops(alone)] == ["lake.t.a"]
    assert unnamed_drops(alone, ["lake.t.*"]) == ()


@pytest.mark.parametrize(
    ("old", "new", "capabilities", "kind"),
    [
        ("int32", "int64", ICEBERG, "column.widened"),
        ("int32", "string", ICEBERG, "column.rewritten"),
        ("decimal(10,2)", "decimal(12,2)", ICEBERG, "column.widened"),
        ("decimal(10,2)", "decimal(12,4)", ICEBERG, "column.rewritten"),
        ("string", "binary", ICEBERG, None),
        ("float32", "float64", PLAIN, "column.rewritten"),
        ("string", "int32", ICEBERG, None),
    ],
)
def test_a_type_changes_in_place_or_is_written_again(
    old: str, new: str, capabilities: Capabilities, kind: str | None
) -> None:
    world = World(capabilities)
    world.sync(catalog(table("t", f"a:{old}#1", oid="9")))
    made = world.sync(catalog(table("t", f"a:{new}#1", oid="9")), lambda change: "approved")
    assert kinds(made) == ([kind] if kind else [])
    assert world.columns() == {"a": new if kind else old}


def test_rename_and_retype_together() -> None:
    world = World()
    world.sync(catalog(table("t", "a:int32#1", oid="9")))
    source = catalog(table("t", "z:date#1", oid="9"))
    assert kinds(world.sync(source)) == [RENAMED]
    assert world.columns() == {"z": "int32"}
    made = world.sync(source, lambda change: "approved")
    assert kinds(made) == ["column.rewritten"]
    assert world.columns() == {"z": "date"}
    assert not made.steps[0].destructive
    assert {h.code for h in made.steps[0].hazards} == {"TypeChanged", "Rewritten", "MayNotFit"}


TABLES = [
    ("added", [], [("t", "1")], ["table.added"], {"t": "t"}),
    ("removed, retained", [("t", "1")], [], [], {"t": "t"}),
    ("renamed", [("t", "1")], [("u", "1")], ["table.renamed"], {"u": "t"}),
    ("swapped", [("t", "1"), ("u", "2")], [("u", "1"), ("t", "2")], ["table.renamed"] * 3, {"u": "t", "t": "u"}),
    ("chain", [("t", "1"), ("u", "2")], [("u", "1"), ("v", "2")], ["table.renamed"] * 2, {"u": "t", "v": "u"}),
    (
        "cycle of three",
        [("t", "1"), ("u", "2"), ("v", "3")],
        [("u", "1"), ("v", "2"), ("t", "3")],
        ["table.renamed"] * 4,
        {"u": "t", "v": "u", "t": "v"},
    ),
    ("replaced", [("t", "1")], [("t", "2")], ["table.replaced"], {"t": "t"}),
    (
        "the removed table's name is taken by a rename",
        [("t", "1"), ("u", "2")],
        [("t", "2")],
        ["table.renamed"] * 2,
        {"t__v1": "t", "t": "u"},
    ),
]


@pytest.mark.parametrize(("before", "now", "steps", "values"), [c[1:] for c in TABLES], ids=[c[0] for c in TABLES])
def test_tables(
    before: list[tuple[str, str]], now: list[tuple[str, str]], steps: list[str], values: dict[str, str]
) -> None:
    world = World()
    world.sync(Catalog.of(table(n, f"x_{n}:int32#1", oid=i) for n, i in before))
    named = {i: n for n, i in before}
    source = Catalog.of(table(n, f"x_{named.get(i, n)}:int32#1", oid=i) for n, i in now)
    made = world.sync(source)
    assert kinds(made) == steps
    held = {t.name: next(c.native for c in t.columns if c.alias).removeprefix("x_") for t in world.there.tables}
    assert held == values
    assert not world.plan(source).steps


def test_a_replaced_table_is_a_new_generation_with_the_old_columns_kept() -> None:
    world = World()
    world.sync(catalog(table("t", "a:int32#1", "b:int32#2", oid="1")))
    made = world.sync(catalog(table("t", "b:int64#1", "c:string#2", oid="2")))
    assert kinds(made) == ["table.replaced", *["column.recorded"] * 2, "column.widened", "column.added"]
    assert world.values() == {"a": "a", "b": "b", "c": "c"}
    found = world.accepted.by_ref["s", "t"]
    assert (found.generation, found.id) == (1, "2")
    assert found.by_name["a"].retained


def test_a_table_that_stays_behind_gets_no_column_that_was_dropped_there_by_hand() -> None:
    world = World()
    source = catalog(table("t", *T, oid="9"), table("u", "a:int32#4", oid="10"))
    world.sync(source)
    world.sync(catalog(source.by_ref["s", "u"]))
    held = world.there.by_ref["lake", "t"]
    world.there = world.there.put(replace(held, columns=tuple(c for c in held.columns if c.name != "b")))
    assert world.plan(catalog(source.by_ref["s", "u"])).steps == ()
    world.sync(source)
    assert world.columns() == {"a": "int32", "b": "int32", "c": "int32"}


def test_key_changes_wait_and_are_recorded_when_approved() -> None:
    world = World()
    world.sync(catalog(table("t", "a:int32#1!", "b:int32#2", oid="1")))
    source = catalog(table("t", "a:int32#1", "b:int32#2!", oid="1"))
    assert world.sync(source).steps == ()
    assert world.accepted.by_ref["s", "t"].key == ("a",)
    made = world.sync(source, lambda change: "approved")
    assert kinds(made) == ["key.changed"]
    assert world.accepted.by_ref["s", "t"].key == ("b",)


def test_a_removed_key_column_waits_with_its_key() -> None:
    world = World(policy=DROP)
    world.sync(catalog(table("t", "a:int32#1!", "b:int32#2", oid="1")))
    made = world.sync(catalog(table("t", "b:int32#2", oid="1")))
    assert made.steps == ()
    assert {d.change.kind: d.action for d in world.decisions} == {
        "key.removed": "pause_table",
        "column.removed": "ignore",
    }


def test_keyless_and_keyed_tables_have_their_system_columns() -> None:
    accepted = assign(catalog(table("t", "a:int32"), table("u", "a:int32!")), NAMING)
    wanted = desired(accepted, NAMING)
    names = {t.name: [c.name for c in t.columns] for t in wanted.tables}
    assert names["t"] == ["a", "_instep_synced", "_instep_id", "_instep_meta"]
    assert names["u"] == ["a", "_instep_synced", "_instep_deleted", "_instep_meta"]
    assert wanted.by_ref["lake", "t"].by_name["_instep_meta"].type == Json()
    assert all(c.nullable for t in wanted.tables for c in t.columns)


def test_drift_is_noted_and_never_dropped() -> None:
    world = World()
    world.sync(catalog(table("t", *T, oid="9")))
    found = world.there.by_ref["lake", "t"]
    mine = Column("mine", parse("string"))
    wide = tuple(replace(c, type=parse("int64")) if c.name == "a" else c for c in found.columns)
    world.there = catalog(replace(found, columns=(*wide, mine)))
    made = world.sync(catalog(table("t", "b:int32#2", "z:int32#1", "c:int32#3", oid="9")))
    assert kinds(made) == [RENAMED]
    assert [n.detail for n in made.notes] == [
        "column mine string of lake.t was not created by instep: it is not changed"
    ]  # type: ignore[union-attr]
    assert world.columns()["z"] == "int64", "a wider type at the destination is kept"
    assert made.target.by_ref["lake", "t"].by_name["mine"] == mine


@pytest.mark.parametrize(
    ("capabilities", "now", "why"),
    [
        (replace(ICEBERG, renames=False), ("z:int32#1", *T[1:]), "cannot rename a of lake.t"),
        (replace(ICEBERG, drops=False), T[1:], "cannot drop a column of lake.t"),
        (replace(ICEBERG, max_name_bytes=20), (*T, "a_very_long_column_name:int32#4"), "has more than 20 bytes"),
    ],
)
def test_what_a_format_cannot_do_is_refused_and_the_other_tables_go_on(
    capabilities: Capabilities, now: tuple[str, ...], why: str
) -> None:
    world = World(capabilities, DROP)
    world.sync(catalog(table("t", *T, oid="9"), table("u", "x:int32#1", oid="8")))
    made = world.sync(catalog(table("t", *now, oid="9"), table("u", "x:int32#1", "y:int32#2", oid="8")))
    assert why in made.refused["s", "t"]
    assert kinds(made) == ["column.added"]
    assert [c.name for c in world.accepted.by_ref["s", "t"].columns] == ["a", "b", "c"]
    assert [c.name for c in world.accepted.by_ref["s", "u"].columns] == ["x", "y"]


def test_a_foreign_column_that_has_the_wanted_name_refuses_the_rename() -> None:
    world = World()
    world.sync(catalog(table("t", *T, oid="9")))
    found = world.there.by_ref["lake", "t"]
    world.there = catalog(replace(found, columns=(*found.columns, Column("Z", parse("string")))))
    made = world.sync(catalog(table("t", "z:int32#1", *T[1:], oid="9")))
    assert "taken by 'Z'" in made.refused["s", "t"]
    assert made.steps == ()


def test_an_interrupted_plan_is_finished_by_the_next() -> None:
    """Without ids only recorded names tell what was done already."""
    world = World()
    world.sync(catalog(table("t", "a:int32", "b:int32")))
    world.sync(catalog(table("t", "b:int32")))
    source = catalog(table("t", "a:string", "b:int32"))
    made = world.plan(source)
    assert kinds(made) == [RENAMED, "column.added"]
    accepted = world.accepted
    world.sync(source)
    world.accepted = accepted
    assert world.plan(source).steps == ()
    assert world.columns() == {"a__v1": "int32", "b": "int32", "a": "string"}


def test_a_plan_is_refused_when_its_base_has_moved() -> None:
    world = World()
    world.sync(catalog(table("t", *T, oid="9")))
    made = world.plan(catalog(table("t", *T, "d:int32#4", oid="9")))
    check_base(made, world.accepted, world.there)
    with pytest.raises(StalePlan, match="accepted schema has changed"):
        check_base(made, Catalog(), world.there)
    with pytest.raises(StalePlan, match="destination has changed"):
        check_base(made, world.accepted, Catalog())


def test_a_plan_survives_json() -> None:
    world = World(policy=DROP)
    world.sync(catalog(table("t", *T, oid="9"), table("u", "x:int32#1", oid="8")))
    source = catalog(table("t", "b:string#1", "c:int32#3", "d:int32#4", oid="9"), table("v", "x:int32#1", oid="8"))
    made = world.plan(source, lambda change: "approved")
    assert {"table.renamed", "column.rewritten", "column.removed"} <= set(kinds(made))
    assert plan_from_dict(json.loads(json.dumps(plan_to_dict(made)))) == made


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "format version None"),
        ({"format_version": 99}, "version 99"),
        ({"format_version": FORMAT_VERSION}, "damaged"),
    ],
)
def test_a_foreign_or_damaged_plan_is_refused(data: dict[str, object], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        plan_from_dict(data)


def test_step_ids_depend_on_content_only() -> None:
    world = World()
    world.sync(catalog(table("t", *T, oid="9")))
    source = catalog(table("t", *T, "d:int32#4", "e:int32#5", oid="9"))
    one, two = world.plan(source), world.plan(source)
    assert [s.id for s in one.steps] == [s.id for s in two.steps]
    assert len({s.id for s in one.steps}) == 2


def test_an_id_that_another_table_has_taken_over_says_nothing_any_more() -> None:
    """A table and a view are never one thing, whatever their ids say."""
    world = World(PLAIN, Policy(preset="propagate_all"))
    for source in (
        replace(table("b", "b:string#6", oid="5"), schema="t"),
        table("c", "c:string#7!", oid="5", kind="view"),
        table("e", "B:string#9", oid="5"),
    ):
        made = world.sync(catalog(source))
        assert not made.refused
    assert {t.name: list(world.columns(t.name)) for t in world.there.tables} == {"t__b": ["b"], "c": ["c"], "e": ["B"]}


ANSWERS = st.sampled_from([None, "approved", "rejected"])


@settings(max_examples=100, deadline=None, phases=[Phase.generate])
@given(data=st.data(), capabilities=st.sampled_from([ICEBERG, PLAIN]), identified=st.booleans())
def test_any_history_converges(data: st.DataObject, capabilities: Capabilities, identified: bool) -> None:
    """Whatever is held or approved: the steps lead to what the plan says, and a second plan has none."""
    preset = data.draw(st.sampled_from(["allow_all", "block_all", "propagate_all", "approve"]))
    world = World(capabilities, Policy(preset=preset))
    for _ in range(3):
        source = data.draw(catalogs(identified=identified))
        answers = {}
        for change in diff(world.accepted, source):
            answers[repr(change)] = data.draw(ANSWERS)
        made = world.sync(source, lambda change: answers.get(repr(change)))  # noqa: B023
        assert not made.refused
        wanted = desired(world.accepted, NAMING)
        again = plan((), world.accepted, world.accepted, world.there, wanted, capabilities)
        assert again.steps == ()
        assert again.notes == ()


def test_columns_builder() -> None:
    assert column("a:int64#3!") == Column("a", parse("int64"), id="3", key=1)
