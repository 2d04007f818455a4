"""A source that adds many columns at once, or cannot decide on a type."""

from __future__ import annotations

from dataclasses import replace

from events.shows import shows
from instep.schema.policy.policy import Policy, Rule
from instep.sync.schema_changes.evolve import evolve, preview
from sync_world import World

RETYPE = Policy(rules=(Rule(("column.retyped", "column.widened", "column.narrowed"), "apply"),))


@shows(trap=14)
def test_a_flood_of_columns_is_let_in_up_to_the_limit(world: World) -> None:
    world.run("create table item (id int primary key)")
    world.evolve()
    world.run("alter table item " + ", ".join(f"add c{n} text" for n in range(6)))
    context = replace(world.context, max_new_columns=4)
    evolve(context, preview(context).plan)
    assert world.schema("item") == "id int32!, c0 string, c1 string, c2 string, c3 string"
    held = [r for r in world.store.reviews.find("shop", ("open",)) if r.action == "review"]
    assert sorted((r.column, r.rule) for r in held) == [("c4", "new column limit"), ("c5", "new column limit")]
    assert "max_new_columns" in held[0].why
    evolve(context, preview(context).plan)
    assert world.accepted("item").by_name.keys() == {"id", "c0", "c1", "c2", "c3"}, "held until it is answered"
    world.answer("approved")
    evolve(context, preview(context).plan)
    assert len(world.accepted("item").columns) == 7


def test_the_first_selection_is_no_flood(world: World) -> None:
    columns = ", ".join(f"c{n} int" for n in range(8))
    world.run(f"create table item (id int primary key, {columns})")
    context = replace(world.context, max_new_columns=2)
    evolve(context, preview(context).plan)
    assert len(world.accepted("item").columns) == 9


@shows(trap=14)
def test_a_type_that_goes_back_and_forth_is_held(world: World) -> None:
    world.policy = RETYPE
    world.run("create table item (id int primary key, v int)")
    world.evolve()
    for type in ("boolean using v > 0", "int using v::int"):
        world.run(f"alter table item alter v type {type}")
        world.evolve()
    assert world.schema("item") == "id int32!, v int32"
    world.run("alter table item alter v type boolean using v > 0")
    world.evolve()
    assert world.schema("item") == "id int32!, v int32"
    [held] = world.store.reviews.find("shop", ("open",))
    assert (held.action, held.rule) == ("review", "type flapping")
    assert "int32 -> boolean -> int32 -> boolean" in held.why
    world.answer("approved")
    world.evolve()
    assert world.schema("item") == "id int32!, v boolean"
