"""What keeps a connection safe whatever policy says, bound by bound, from real sources into a real lake."""

from __future__ import annotations

import pytest

from events.shows import shows
from instep.errors import Blocked
from instep.schema.policy.policy import Policy
from sync_world import MakeWorld, World, preset

DROPS = preset("propagate_all")
"""The policy that lets most in by itself, drops included."""


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(policy=DROPS)


def tables(world: World, count: int) -> None:
    for number in range(count):
        world.run(f"CREATE TABLE t{number} (id int PRIMARY KEY, a int, b int, c int, d int)")
        world.run(f"INSERT INTO t{number} (id) VALUES (1)")  # noqa: S608


@pytest.mark.sampled
@shows(event=42)
@pytest.mark.parametrize(("kind", "detections"), [("postgres", 1), ("mysql", 2), ("sqlite", 2)])
def test_a_removal_is_applied_after_so_many_detections(make_world: MakeWorld, kind: str, detections: int) -> None:
    world = make_world(kind, policy=DROPS)
    tables(world, 2)
    world.sync()
    world.run("ALTER TABLE t0 DROP COLUMN a")
    for number in range(1, detections + 1):
        assert [c.name for c in world.accepted("t0").columns][1] == "a"
        world.sync()
        assert ("a" in world.accepted("t0").by_name) == (number < detections)


@pytest.mark.sampled
@shows(event=65)
@pytest.mark.parametrize("name", ["allow_all", "propagate_all", "block_all"])
def test_a_mass_disappearance_applies_nothing_and_stops_the_connection(make_world: MakeWorld, name: str) -> None:
    world = make_world(policy=Policy(preset=name))
    tables(world, 5)
    world.sync()
    for number in range(4):
        world.run(f"DROP TABLE t{number}")
    world.run("ALTER TABLE t4 ADD e int")
    with pytest.raises(Blocked, match="paused"):
        world.sync()
    assert len(world.tables()) == 5
    assert not any(t.retained for t in world.store.accepted.catalog("shop").tables)
    assert "e" not in world.accepted("t4").by_name


@shows(event=65)
def test_a_source_without_any_table_loses_nothing(world: World) -> None:
    tables(world, 4)
    world.sync()
    for number in range(4):
        world.run(f"DROP TABLE t{number}")
    with pytest.raises(Blocked, match="paused"):
        world.sync()
    assert [world.rows(f"t{n}", "id") for n in range(4)] == [[(1,)]] * 4


@shows(event=42)
def test_many_columns_of_one_table_that_vanish_at_once(world: World) -> None:
    tables(world, 1)
    world.sync()
    world.run("ALTER TABLE t0 DROP COLUMN a, DROP COLUMN b, DROP COLUMN c")
    with pytest.raises(Blocked, match="paused"):
        world.sync()
    assert [c.name for c in world.accepted("t0").live] == ["id", "a", "b", "c", "d"]


@shows(trap=16, event=64)
def test_lost_access_is_an_error_of_its_table_and_nothing_is_removed(world: World) -> None:
    tables(world, 3)
    world.restricted = True
    world.sync()
    assert world.case.deny
    world.case.deny("t1")
    for _ in range(2):
        report = world.sync()
        assert world.statuses(report) == {"t0": "done", "t1": "failed", "t2": "done"}
        assert not world.accepted("t1").retained
        assert world.rows("t1", "id") == [(1,)]
    assert "table.removed" not in {r.kind for r in world.store.reviews.find("shop", ())}


@pytest.mark.sampled
@shows(trap=9, event=48)
@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_a_changed_key_pauses_its_table_alone(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind, policy=preset("allow_all"))
    tables(world, 2)
    world.sync()
    if kind == "postgres":
        world.run("UPDATE t1 SET a = 1", "ALTER TABLE t1 DROP CONSTRAINT t1_pkey", "ALTER TABLE t1 ADD PRIMARY KEY (a)")
    else:
        world.run("UPDATE t1 SET a = 1", "ALTER TABLE t1 DROP PRIMARY KEY, ADD PRIMARY KEY (a)")
    assert world.statuses(world.sync()) == {"t0": "done", "t1": "paused"}
    assert set(world.pauses()) == {"t1"}
    assert world.accepted("t1").key == ("id",)
