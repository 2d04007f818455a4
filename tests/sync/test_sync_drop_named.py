"""Columns that a person has switched off and asked to be dropped, by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.schema.selection.overrides import Switch
from sync_world import MakeWorld, World


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    made = make_world("sqlite")
    made.run("CREATE TABLE t (id int PRIMARY KEY, a text, b text)", "INSERT INTO t VALUES (1, 'x', 'y')")
    made.sync()
    return made


def switch(world: World, column: str, on: bool) -> None:
    world.store.switches.set("shop", [Switch("main", "t", column, enabled=on)], "ann")
    found = world.store.switches.of("shop")
    names = {value: frozenset(s.path for s in found if s.enabled is value) for value in (True, False)}
    world.selection = replace(world.selection, on=names[True], off=names[False])


def drop(world: World, *columns: str) -> None:
    assert world.sync(drop_columns=frozenset(f"main.t.{c}" for c in columns)).status in ("done", "partial")


def test_only_what_is_switched_off_is_dropped(world: World) -> None:
    switch(world, "a", False)
    drop(world, "a", "b", "id", "nope")
    assert world.schema("t") == "id int64!, b string"
    assert world.rows("t") == [(1, "y")]
    assert world.reviews("open") == {}, "it is still at the source, and nobody is asked again"
    world.sync()
    assert world.schema("t") == "id int64!, b string"


def test_what_was_switched_on_again_meanwhile_stays(world: World) -> None:
    switch(world, "a", False)
    switch(world, "a", True)
    drop(world, "a")
    assert world.rows("t") == [(1, "x", "y")]


def test_it_comes_back_as_a_new_column(world: World) -> None:
    switch(world, "a", False)
    drop(world, "a")
    switch(world, "a", True)
    world.sync(full=True)
    assert world.rows("t", "id", "a", "b") == [(1, "x", "y")]


def test_a_column_that_is_gone_at_the_source_can_be_dropped_too(world: World) -> None:
    world.run("ALTER TABLE t DROP a")
    world.sync(again=1)
    assert "a string~" in world.schema("t")
    drop(world, "a")
    assert world.schema("t") == "id int64!, b string"


def test_dropping_twice_changes_nothing(world: World) -> None:
    switch(world, "a", False)
    drop(world, "a")
    version = world.store.accepted.latest("shop")
    drop(world, "a")
    assert world.store.accepted.latest("shop") == version
