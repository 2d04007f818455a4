"""Online schema changes: a shadow table takes the name of the table that it was made of."""

from __future__ import annotations

import pytest

from events.shows import shows
from sync_world import MakeWorld

ROWS = "INSERT INTO {} (id, a) VALUES (1, 10), (2, 20)"
TOOLS = [("_t_gho", "_t_del"), ("_t_new", "_t_old"), ("_t_gho", "_t_20261121120000_del")]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["postgres", "mysql", "sqlite"])
@pytest.mark.parametrize(("shadow", "old"), TOOLS)
@pytest.mark.parametrize("seen", [False, True], ids=["between two syncs", "over a sync"])
@shows(trap=11, event=50)
def test_a_swap_is_an_alter_of_the_same_table(
    make_world: MakeWorld, kind: str, shadow: str, old: str, seen: bool
) -> None:
    world = make_world(kind)
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", ROWS.format("t"))
    world.sync()
    world.run(f"CREATE TABLE {shadow} (id int PRIMARY KEY, a int, b int)", ROWS.format(shadow))
    if seen:
        world.sync()
    world.run(f"ALTER TABLE t RENAME TO {old}", f"ALTER TABLE {shadow} RENAME TO t")
    world.run("UPDATE t SET b = 7 WHERE id = 1")
    report = world.settled()
    assert world.statuses(report)["t"] == "done"
    assert world.rows("t", "id", "a", "b") == [(1, 10, 7), (2, 20, None)]
    assert (world.tables()["t"], world.accepted("t").generation) == ("t", 0)
    assert not any("renamed" in summary for summary in world.reviews("open", "applied"))
    assert world.differing() == {}
    assert world.preview().plan.steps == ()
