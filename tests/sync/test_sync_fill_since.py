"""Rows whose new column changed before the column was let in: their cursor has passed, their values arrive."""

from __future__ import annotations

import pytest

from events.shows import shows
from instep.schema.policy.policy import Rule
from instep.sync.loading.table_load import lowest
from sync_world import MakeWorld, World, cursor, preset

HELD = Rule(("column.added",), "review")
SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, at int NOT NULL)",
    "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
)


def begun(world: World) -> World:
    world.settings["t"] = cursor("at", deletes="ignore")
    world.policy = preset("allow_all", HELD)
    world.run(*SETUP)
    assert world.sync().status == "done"
    return world


def column(world: World, name: str = "size") -> dict[int, object]:
    return dict(world.rows("t", "id", name))  # type: ignore[arg-type]


def approved(world: World) -> None:
    world.answer("approved", "column.added")
    report = world.sync()
    assert report.status == "done", report


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["postgres", "mysql", "sqlite"])
@shows(trap=17)
def test_updates_between_seen_and_accepted_arrive(make_world: MakeWorld, kind: str) -> None:
    world = begun(make_world(kind))
    world.run("ALTER TABLE t ADD COLUMN size int")
    world.sync()
    world.run("UPDATE t SET size = 20, at = 10 WHERE id = 2", "UPDATE t SET size = 30, at = 11 WHERE id = 3")
    world.sync()
    world.run("UPDATE t SET at = 12 WHERE id = 4")
    world.sync()
    approved(world)
    assert column(world) == {1: None, 2: 20, 3: 30, 4: None}
    assert world.store.backfills.waiting("shop") == []
    assert world.store.watermarks.of("shop") == {}
    world.run("UPDATE t SET at = 13 WHERE id = 4")
    read = world.sync()
    assert [t.read for t in read.tables] == [1], "the next one begins at its own cursor again"


def test_under_the_names_of_the_day(make_world: MakeWorld) -> None:
    """The column and its table are renamed while the column waits, and once more while its rows do."""
    world = begun(make_world())
    world.run("ALTER TABLE t ADD COLUMN size int")
    world.sync()
    world.run("UPDATE t SET size = 20, at = 10 WHERE id = 2")
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN size TO weight")
    world.sync()
    world.answer("approved", "column.added")
    assert world.evolve()
    assert [(b.scope, b.column) for b in world.store.backfills.waiting("shop")] == [("since", "weight")]
    world.run("ALTER TABLE t RENAME COLUMN weight TO mass")
    assert world.sync().status == "done"
    assert column(world, "mass") == {1: None, 2: 20, 3: None, 4: None}


def test_an_interrupted_load_begins_there_again(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    from instep.crash import VARIABLE, Crashed

    world = begun(make_world())
    world.run("ALTER TABLE t ADD COLUMN size int")
    world.sync()
    world.run("UPDATE t SET size = 20, at = 10 WHERE id = 2")
    world.sync()
    world.answer("approved", "column.added")
    monkeypatch.setenv(VARIABLE, "sync.planned=raise")
    with pytest.raises(Crashed):
        world.sync()
    monkeypatch.delenv(VARIABLE)
    assert world.sync().status == "done"
    assert column(world)[2] == 20


def test_several_columns_begin_at_the_lowest(make_world: MakeWorld) -> None:
    world = begun(make_world())
    world.run("ALTER TABLE t ADD COLUMN a int")
    world.sync()
    world.run("UPDATE t SET a = 5, at = 5 WHERE id = 1")
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN b int")
    world.sync()
    world.run("UPDATE t SET b = 6, at = 6 WHERE id = 2")
    world.sync()
    approved(world)
    assert world.rows("t", "id", "a", "b")[:2] == [(1, 5, None), (2, None, 6)]


@pytest.mark.parametrize(
    ("after", "noted", "expected"),
    [
        ("5", [], "5"),
        ("5", ['{"column":"at","upper":"3"}', '{"column":"at","upper":"4"}'], "3"),
        ("10", ['{"column":"at","upper":"9"}'], "9"),
        ("5", ['{"column":"at","upper":"7"}'], "5"),
        ("5", ['{"column":"other","upper":"3"}'], None),
        ("5", ["{}"], None),
        (None, [], None),
        ("2026-02-01", ['{"column":"at","upper":"2026-01-31"}'], "2026-01-31"),
    ],
)
def test_the_lowest_cursor(after: str | None, noted: list[str], expected: str | None) -> None:
    assert lowest(after, noted, "at") == expected
