"""Undo over real databases and a real lake: what readers see then, and what the next syncs make of it."""

from __future__ import annotations

from sync_world import World, preset

from instep.sync.undo import Takeback, find, prepare, takeback
from lake import SPARK

pytestmark = [*SPARK]

SETUP = ("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1, 10, 20), (2, 11, 21)")
DROPS = preset("allow_all", removed="drop")


def change(world: World, summary: str) -> str:
    """The id of the change that was applied last under this summary."""
    found = [r for r in world.store.reviews.find("shop", ("applied",)) if r.summary == f"{summary}"]
    assert found, [r.summary for r in world.store.reviews.find("shop", ("applied",))]
    return str(found[0].id)


def looked_at(world: World, *ids: str) -> Takeback:
    return prepare(world.pipe, [r for one in ids for r in find(world.pipe, one)])


def undone(world: World, *summaries: str, allowed: tuple[str, ...] = ()) -> Takeback:
    made = looked_at(world, *(change(world, s) for s in summaries))
    takeback(world.pipe, made, allowed)
    return made


def test_a_rename_keeps_old_rows_and_new(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN a TO z", "INSERT INTO t VALUES (3, 12, 22)")
    world.sync()
    assert world.schema("t") == "id int32!, z int32, b int32"
    undone(world, "column public.t.a renamed to z")
    assert world.schema("t") == "id int32!, a int32, b int32"
    assert world.rows("t", "id", "a") == [(1, 10), (2, 11), (3, 12)]
    world.run("INSERT INTO t VALUES (4, 13, 23)", "UPDATE t SET z = 99 WHERE id = 1")
    for _ in range(2):
        world.sync()
        assert world.schema("t") == "id int32!, a int32, b int32"
        assert world.rows("t", "id", "a") == [(1, 99), (2, 11), (3, 12), (4, 13)]
    assert world.reviews() == {"column t.a renamed to z": "ignore"}
    assert world.events("change.undone") == ["change.undone"]


def test_a_dropped_column_comes_back_with_its_values(world: World) -> None:
    world.policy = DROPS
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN b", "INSERT INTO t VALUES (3, 12)")
    world.sync()
    assert world.schema("t") == "id int32!, a int32"
    made = undone(world, "column public.t.b removed (int32)")
    assert any("(1) have NULL" in text for text in made.limits), made.limits
    assert world.schema("t") == "id int32!, a int32, b int32~"
    assert world.rows("t", "id", "b") == [(1, 20), (2, 21), (3, None)]
    world.run("INSERT INTO t VALUES (4, 13)")
    world.sync()
    assert world.rows("t", "id", "b") == [(1, 20), (2, 21), (3, None), (4, None)]
    assert world.reviews() == {}
