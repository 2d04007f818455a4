"""More new columns than are let in at once: their values are kept as JSON until somebody decides."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from instep.schema.selection.selection import Selection, patterns
from instep.sync.operations.verify import verify
from instep.sync.run import RunScope, sync
from instep.sync.schema_changes.evolve import evolve, preview
from sync_world import MakeWorld, World, cursor

EXTRA = "_instep_extra"
TABLE = "CREATE TABLE t (id int PRIMARY KEY, n int)"


def columns(*names: str) -> list[str]:
    return [f"ALTER TABLE t ADD COLUMN {name}" for name in names]


def limited(world: World, most: int = 0) -> Any:
    return replace(world.context, max_new_columns=most)


def evolved(world: World, most: int = 0) -> None:
    context = limited(world, most)
    evolve(context, preview(context).plan)


def names(world: World) -> tuple[str, ...] | None:
    return world.accepted("t").extra


def there(world: World) -> bool:
    """Whether the lake's table has the column."""
    [table] = world.destination.schema.inspect([("shop", "t")]).tables
    return EXTRA in table.by_name


def test_the_column_comes_when_it_is_needed_and_stays(world: World) -> None:
    world.run(TABLE)
    evolved(world)
    assert (names(world), there(world)) == (None, False)
    world.run(*columns("a int", "b int"))
    evolved(world, 1)
    assert (names(world), there(world)) == (("b",), True)
    assert world.preview().plan.steps == ()
    world.answer("approved")
    evolved(world, 1)
    assert (names(world), there(world)) == ((), True)
    assert [(b.scope, b.column) for b in world.store.backfills.waiting("shop")] == [("column", "b"), ("extra", "b")]


def test_a_rejected_column_leaves(world: World) -> None:
    world.run(TABLE)
    evolved(world)
    world.run(*columns("a int"))
    evolved(world)
    world.answer("rejected")
    evolved(world)
    assert names(world) == ()
    assert world.store.backfills.waiting("shop") == []


def test_what_the_source_drops_meanwhile_is_not_forgotten(world: World) -> None:
    world.run(TABLE)
    evolved(world)
    world.run(*columns("a int", "b int"))
    evolved(world)
    world.run("ALTER TABLE t DROP COLUMN a")
    evolved(world)
    assert names(world) == ("a", "b")


def test_other_columns_that_wait_are_not_read(world: World) -> None:
    """They can be read when they are let in."""
    from sync_world import preset

    world.policy = preset("approve")
    world.run(TABLE)
    evolved(world)
    world.run(*columns("a int"))
    evolved(world)
    assert names(world) is None


def loaded(world: World, most: int = 0) -> None:
    sync(limited(world, most), RunScope(), engine=world.rows_by)


def extra(world: World) -> dict[int, Any]:
    rows = world.rows("t", "id", EXTRA)
    return {id: None if text is None else json.loads(text) for id, text in rows}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_values_are_kept_until_somebody_decides(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    path = f"{world.case.schema}.t"
    world.selection = Selection(exclude_columns=patterns([f"{path}.x"]), hashed=patterns([f"{path}.h"]))
    world.run(TABLE, "INSERT INTO t VALUES (1, 1), (2, 2)")
    loaded(world)
    world.run(*columns("a int", "b varchar(20)", "x varchar(20)", "h varchar(20)"))
    world.run("UPDATE t SET b = 'one', x = 'excluded', h = 'hashed', a = 7 WHERE id = 1")
    loaded(world, 1)
    found = extra(world)
    assert (found[1]["b"], found[2]) == ("one", None)
    assert found[1].keys() == {"b", "h"}
    assert len(found[1]["h"]["sha256"]) == 64
    assert world.rows("t", "id", "a") == [(1, 7), (2, None)]
    assert all(v.equal for v in verify(limited(world, 1)))
    loaded(world, 1)
    report = world.store.runs.tables(world.store.runs.latest("shop").id)  # type: ignore[union-attr]
    assert [(t.inserted, t.updated) for t in report] == [(0, 0)], "nothing has changed"
    world.run("UPDATE t SET b = 'two' WHERE id = 2")
    loaded(world, 1)
    assert extra(world)[2] == {"b": "two"}
    world.answer("approved")
    loaded(world, 1)
    assert extra(world) == {1: None, 2: None}
    assert world.rows("t", "id", "b") == [(1, "one"), (2, "two")]
    assert world.differing() == {}


def test_what_only_the_lake_has_is_kept(world: World) -> None:
    world.settings["t"] = cursor("n")
    world.run(TABLE, "INSERT INTO t VALUES (1, 1), (2, 2)")
    loaded(world)
    world.run(*columns("a int"), "UPDATE t SET a = id, n = n + 2")
    loaded(world)
    assert extra(world) == {1: {"a": 1}, 2: {"a": 2}}
    world.run("ALTER TABLE t DROP COLUMN a", "UPDATE t SET n = 9 WHERE id = 1", "INSERT INTO t VALUES (3, 10)")
    loaded(world)
    assert extra(world) == {1: {"a": 1}, 2: {"a": 2}, 3: None}
    sync(limited(world), RunScope(full=True), engine=world.rows_by)
    assert extra(world) == {1: {"a": 1}, 2: {"a": 2}, 3: None}


@pytest.mark.sampled
@pytest.mark.parametrize("way", ["rekey", "rebuild"])
def test_another_key_keeps_nothing_frozen_in_a_new_generation(world: World, way: Any) -> None:
    from instep.sync.operations import set_key

    world.run(TABLE, "ALTER TABLE t ADD COLUMN v int NOT NULL DEFAULT 1", "INSERT INTO t VALUES (1, 1, 1)")
    world.engine = "local"
    world.sync()
    world.run(*columns("a int"))
    evolved(world)
    world.run(
        "ALTER TABLE t DROP COLUMN a", "ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (v)"
    )
    evolved(world)
    set_key.carry_out(world.context, set_key.prepare(world.context, "public.t", ["v"], way))
    assert names(world) == (() if way == "rebuild" else ("a",))
    world.sync()
    assert there(world)
