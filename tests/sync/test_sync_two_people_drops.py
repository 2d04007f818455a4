"""Columns that are dropped because somebody has named them: a change on record, and under four_eyes two people."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from instep.errors import Blocked
from instep.schema.selection.overrides import Switch
from instep.sync.run import RunScope, sync
from instep.sync.schema_changes import undo
from sync_world import MakeWorld, World

WANTED: dict[str, dict[str, Any]] = {
    "by name": {"drop_columns": frozenset({"main.t.old"})},
    "retained ones": {"full": True, "drop_retained": True},
}


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A table without a key, of which the source has dropped a column that is kept."""
    made = make_world("sqlite", engine="local")
    made.run("CREATE TABLE t (a text, old text)", "INSERT INTO t VALUES ('x', 'y')")
    made.sync()
    made.run("ALTER TABLE t DROP old")
    made.sync(again=1)
    assert made.schema("t") == "a string, old string~"
    return made


def asks(world: World, who: str, *, four_eyes: bool = True, **wanted: Any) -> None:
    context = replace(world.context, who=who, four_eyes=four_eyes)
    sync(context, RunScope(**wanted), engine=world.rows_by)


@pytest.mark.parametrize("how", WANTED)
def test_it_takes_two_people(world: World, how: str) -> None:
    said = r"drop columns: main\.t\.old: with four_eyes this takes two people, and only ann has asked for it"
    for _ in range(2):
        with pytest.raises(Blocked, match=said):
            asks(world, "ann", **WANTED[how])
    assert world.schema("t") == "a string, old string~"
    asks(world, "bob", **WANTED[how])
    assert world.schema("t") == "a string"
    acts = world.store.events.after(connection="shop", types=("operation.requested", "operation.confirmed"))
    assert [(e.type, e.data["who"]) for e in acts] == [("operation.requested", "ann"), ("operation.confirmed", "bob")]


def test_who_names_another_column_asks_for_something_else(world: World) -> None:
    world.store.switches.set("shop", [Switch("main", "t", "a", enabled=False)], "ann")
    for who, columns in (("ann", {"main.t.old"}), ("bob", {"main.t.old", "main.t.a"})):
        with pytest.raises(Blocked, match=f"only {who} has asked"):
            asks(world, who, drop_columns=frozenset(columns))
    assert world.schema("t") == "a string, old string~"


@pytest.mark.parametrize("how", WANTED)
def test_without_the_option_one_is_enough_and_it_is_on_record(world: World, how: str) -> None:
    before = world.store.events.latest(limit=1)[0].number
    asks(world, "ann", four_eyes=False, **WANTED[how])
    assert world.schema("t") == "a string"
    told = [e for e in world.store.events.after(before, connection="shop") if e.type == "change.applied"]
    [change] = [world.store.reviews.get(e.data["change"]) for e in told]
    assert (change.status, change.kind, change.table, change.column, change.decided_by) == (
        "applied", "column.removed", ("main", "t"), "old", "ann",
    )  # fmt: skip
    assert "old" in told[0].data["summary"]
    assert world.sync().status == "done"
    assert world.reviews("open", "approved") == {}


def test_what_was_let_go_of_is_taken_back_like_another_change(world: World) -> None:
    world.run("CREATE TABLE u (id int PRIMARY KEY, old text)", "INSERT INTO u VALUES (1, 'y')")
    world.sync()
    world.run("ALTER TABLE u DROP old")
    world.sync(again=1)
    asks(world, "ann", four_eyes=False, drop_columns=frozenset({"main.u.old"}))
    assert world.schema("u") == "id int64!"
    [change] = [r for r in world.store.reviews.find("shop", ("applied",)) if r.decided_by == "ann"]
    undo.apply_undo(world.context, undo.prepare(world.context, undo.find(world.context, change.id)))
    world.sync()
    assert world.schema("u") == "id int64!, old string~"
    assert world.rows("u", "id", "old") == [(1, "y")]
