"""A plan in words."""

from __future__ import annotations

from world import World, catalog, table

from instep.schema.catalog.catalog import Column
from instep.schema.catalog.types import parse
from instep.schema.planning.explain import Impact, explain, meanwhile, size
from instep.schema.policy.policy import Policy, decide
from instep.schema.policy.presets import KINDS

import pytest  # isort: skip


def test_a_plan_says_what_why_and_what_it_costs() -> None:
    world = World(policy=Policy("careful", modifiers={"removed": "drop", "backfill": "column"}))
    world.sync(catalog(table("t", "a:int32#1", "b:int32#2", "c:int32#3", oid="9")))
    source = catalog(table("t", "a:string#1", "c:date#3", "d:int32#4", oid="9"))
    text = "\n".join(explain(world.plan(source), {("lake", "t"): Impact(1_500_000, 3 << 20, 12)}))
    for part in (
        "3 steps at the destination",
        "- column lake.t.b removed (int32)",
        "drops lake.t.b (allowed by preset allow_all)",
        "touches 1,500,000 rows, 3.0 MiB, 12 files",
        "~ rewrite column a: int32 becomes string",
        "breaks readers: a was int32 and is string",
        "+ column lake.t.d added (int32)",
        "needs backfill: rows loaded before have NULL in d",
        "will be applied (preset allow_all); backfill: column",
        "source column dropped; the destination column is dropped too (preset allow_all)",
        "Not applied",
        "~ column s.t.c retyped from int32 to date",
        "waits for a review (preset allow_all)",
        "meanwhile values are cast to the accepted type; values that do not fit are quarantined",
    ):
        assert part in text


def test_nothing_to_do() -> None:
    world = World()
    source = catalog(table("t", "a", oid="9"))
    world.sync(source)
    assert explain(world.plan(source)) == ["nothing to do: the destination is up to date"]


def test_drift_and_refusals_are_shown() -> None:
    world = World()
    world.sync(catalog(table("t", "a:int32#1", oid="9")))
    found = world.there.by_ref["lake", "t"]
    world.there = catalog(type(found)(**{**vars(found), "columns": (*found.columns, Column("z", parse("string")))}))
    lines = explain(world.plan(catalog(table("t", "Z:int32#1", oid="9"))))
    assert any("! s.t is left as it is: 'Z' in lake.t is taken by 'z'" in line for line in lines)
    assert any("column z string of lake.t was not created by instep" in line for line in lines)


def test_every_held_kind_that_holds_values_says_what_happens_to_them() -> None:
    world = World(policy=Policy(preset="approve"))
    world.accepted = catalog(table("t", "a:int32#1", "b:int32#2", "c:int64#3", oid="9"), table("u", "a", oid="8"))
    source = catalog(table("t", "z:int32#1", "c:int32#3", "d:int32#4", oid="9"), table("v", "a", oid="7"))
    world.plan(source)
    said = {d.change.kind: meanwhile(d) for d in world.decisions}
    assert said["column.renamed"] == "it is read under its accepted name"
    assert said["column.removed"] == "new rows have NULL in it"
    assert said["table.removed"].startswith("it is skipped with status missing")
    assert all(said[kind] for kind in said)
    assert set(said) <= set(KINDS)


def test_pauses_say_how_far_they_reach() -> None:
    world = World()
    world.accepted = catalog(table("t", "a:int32#1!", oid="9"))
    world.plan(catalog(table("t", "a:int32#1", oid="9")))
    (decision,) = world.decisions
    assert meanwhile(decision) == "the table is not read; the others continue"
    assert meanwhile(decide(decision.change, Policy(preset="stop"))) == "nothing is read"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text
