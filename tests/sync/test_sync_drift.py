"""Tables that were edited manually with pyiceberg: found, asked about, put back or adopted. Over real Iceberg."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.types import LongType, StringType

from events.shows import shows
from instep.errors import Blocked
from instep.model import Review
from instep.schema.policy.policy import Rule
from instep.sync.schema_changes import declare_column_rename
from instep.sync.schema_changes.undo import apply_undo, find, prepare
from sync_world import MakeWorld, World, cursor, preset

Edit = Callable[[Any], object]


@pytest.fixture
def left(world: World) -> World:
    """Two tables, as they were left."""
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int, b text)", "CREATE TABLE u (id int PRIMARY KEY)")
    world.evolve()
    return world


def by_hand(world: World, edit: Edit, name: str = "t") -> None:
    with world.destination.lake.catalog.load_table(("shop", name)).update_schema(
        allow_incompatible_changes=True
    ) as update:
        edit(update)


def columns(world: World, name: str = "t") -> list[str]:
    schema = world.destination.lake.catalog.load_table(("shop", name)).schema()
    kept = [f for f in schema.fields if not f.name.startswith("_instep_")]
    return [f"{f.name} {f.field_type}{'!' if f.required else ''}" for f in kept]


def dropped_and_made(update: Any) -> None:
    update.delete_column("b")
    update.add_column("b", LongType())


WAS = ["id int", "a int", "b string"]
EDITS = [
    ("dropped", lambda u: u.delete_column("a"), "column a is gone", ["id int", "b string", "a int"]),
    ("renamed", lambda u: u.rename_column("a", "x"), "column a is called x", WAS),
    ("required", lambda u: u.update_column("a", required=True), "column a no longer accepts NULL", WAS),
]
HARMLESS = [
    ("added", lambda u: u.add_column("mine", StringType()), "column mine string was added", [*WAS, "mine string"]),
    ("widened", lambda u: u.update_column("a", LongType()), "column a is int64 instead of int32",
     ["id int", "a long", "b string"]),
]  # fmt: skip


def drift(world: World, *statuses: Any) -> list[str]:
    found = world.store.reviews.find("shop", statuses or ("open",))
    return [r.summary for r in found if r.kind == "destination.drifted"]


@pytest.mark.sampled
@pytest.mark.parametrize(("edit", "said", "after"), [c[1:] for c in [*EDITS, *HARMLESS]],
                         ids=[c[0] for c in [*EDITS, *HARMLESS]])  # fmt: skip
@shows(trap=15, event=68)
def test_it_is_asked_about_and_approving_repairs_or_adopts(
    left: World, edit: Edit, said: str, after: list[str]
) -> None:
    by_hand(left, edit)
    edited = columns(left)
    left.evolve()
    (summary,) = drift(left)
    assert said in summary
    assert columns(left) == edited
    left.answer("approved", "destination.drifted")
    left.evolve()
    assert sorted(columns(left)) == sorted(after)
    left.evolve()
    assert drift(left) == []
    assert drift(left, "applied") == [summary]


@pytest.mark.parametrize(("edit", "said", "after"), [c[1:] for c in EDITS], ids=[c[0] for c in EDITS])
def test_while_it_is_open_or_rejected_the_others_go_on(left: World, edit: Edit, said: str, after: list[str]) -> None:
    by_hand(left, edit)
    edited = columns(left)
    left.run("ALTER TABLE t ADD more int", "ALTER TABLE u ADD more int")
    for status, expected in (("", "paused"), ("rejected", "failed")):
        if status:
            left.answer(status, "destination.drifted")
        found = left.preview()
        assert {ref[1]: how for ref, (how, _) in found.detection.drift.stopped(found.detection.decisions).items()} == {
            "t": expected
        }
        assert said in next(iter(found.plan.refused.values()))
        left.evolve(found)
        assert columns(left) == edited
    assert columns(left, "u") == ["id int", "more int"]


def test_a_policy_that_applies_puts_it_back_at_once(left: World) -> None:
    left.policy = preset("allow_all", Rule(on=("destination.drifted",), decide="apply"))
    by_hand(left, lambda u: u.rename_column("a", "x"))
    left.evolve()
    assert columns(left) == WAS
    assert len(drift(left, "applied")) == 1


def test_a_column_that_was_made_anew_is_taken_over_and_loaded(left: World) -> None:
    by_hand(left, dropped_and_made)
    left.evolve()
    assert "column b was dropped and recreated as int64" in drift(left)[0]
    left.answer("approved", "destination.drifted")
    left.evolve()
    assert sorted(columns(left)) == sorted(WAS)
    assert [b.table[1] for b in left.store.backfills.waiting("shop")] == ["t"]
    left.evolve()
    assert drift(left) == []


def test_a_table_that_was_dropped_is_made_anew(left: World) -> None:
    left.destination.lake.catalog.drop_table(("shop", "t"))
    left.evolve()
    assert "the table is gone" in drift(left)[0]
    assert not left.destination.schema.inspect([("shop", "t")]).tables
    left.answer("approved", "destination.drifted")
    left.evolve()
    assert columns(left) == WAS


def test_another_table_in_its_place_is_left_alone(left: World) -> None:
    lake = left.destination.lake.catalog
    shape = lake.load_table(("shop", "t")).schema()
    lake.drop_table(("shop", "t"))
    lake.create_table(("shop", "t"), shape)
    left.evolve()
    assert "the table is gone" in drift(left)[0]
    left.answer("approved", "destination.drifted")
    found = left.preview()
    assert "is not ours" in next(iter(found.plan.refused.values()))
    left.evolve(found)
    assert "instep.table" not in lake.load_table(("shop", "t")).properties


def test_an_edit_that_is_taken_back_is_no_question_any_more(left: World) -> None:
    by_hand(left, lambda u: u.rename_column("a", "x"))
    left.preview()
    assert len(drift(left)) == 1
    by_hand(left, lambda u: u.rename_column("x", "a"))
    left.preview()
    assert drift(left) == []


def test_values_are_back_after_the_next_sync(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 10), (2, 20)")
    world.run("CREATE TABLE u (id int PRIMARY KEY)")
    world.sync()
    by_hand(world, lambda u: u.delete_column("a"))
    world.run("INSERT INTO t VALUES (3, 30)", "INSERT INTO u VALUES (1)")
    report = world.sync()
    assert world.statuses(report) == {"t": "paused", "u": "done"}
    assert world.rows("u") == [(1,)]
    world.answer("approved", "destination.drifted")
    assert world.sync().status == "done"
    assert world.rows("t") == [(1, 10), (2, 20), (3, 30)]
    assert world.differing() == {}


def test_a_column_that_somebody_added_stops_nothing(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 10)")
    world.sync()
    by_hand(world, lambda u: u.add_column("mine", StringType()))
    world.run("INSERT INTO t VALUES (2, 20)")
    assert world.sync().status == "done"
    assert world.rows("t") == [(1, 10), (2, 20)]
    assert len(drift(world)) == 1


@pytest.fixture
def dropped(world: World) -> World:
    """Two loaded tables with an applied change each; somebody has dropped a column of the one with a cursor."""
    world.settings["t"] = cursor("n")
    world.run("CREATE TABLE t (id int PRIMARY KEY, n int, v text)", "INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')")
    world.run("CREATE TABLE u (id int PRIMARY KEY)")
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN x int", "ALTER TABLE u ADD COLUMN x int", "ALTER TABLE t RENAME v TO w")
    world.sync()
    by_hand(world, lambda update: update.delete_column("w"))
    return world


def applied(world: World, kind: str, table: str) -> Review:
    (found,) = (r for r in world.store.reviews.find("shop", ("applied",)) if (r.kind, r.table[1]) == (kind, table))
    return found


def test_an_undo_elsewhere_leaves_it_to_its_review(dropped: World) -> None:
    """It would come back empty, and no cursor tells that rows lack its values."""
    context = dropped.context
    made = prepare(context, find(context, applied(dropped, "column.added", "u").id))
    assert "t" not in {s.table[1] for s in made.plan.steps}
    apply_undo(context, made, ("*",))
    assert "w string" not in columns(dropped)
    dropped.sync()
    assert "column w is gone" in drift(dropped)[0]
    dropped.answer("approved", "destination.drifted")
    dropped.sync()
    assert dropped.rows("t", "id", "w") == [(1, "a"), (2, "b")]


def test_an_undo_in_it_waits_for_the_answer(dropped: World) -> None:
    context = dropped.context
    with pytest.raises(Blocked, match="column w is gone"):
        prepare(context, find(context, applied(dropped, "column.added", "t").id))


def test_a_declared_rename_in_it_waits_for_the_answer(dropped: World) -> None:
    dropped.run("ALTER TABLE t DROP COLUMN x", "ALTER TABLE t ADD COLUMN y int")
    with pytest.raises(Blocked, match="column w is gone"):
        declare_column_rename.prepare(dropped.context, "public.t.x", "public.t.y")
