"""Answers and pauses: what was held stays held until it is answered itself, and what is answered is not asked again."""

from __future__ import annotations

import pytest

from instep.control.pauses import resume
from instep.control.reviews import answer
from instep.errors import Blocked
from instep.project.sections.tables import TableSettings
from instep.schema.policy.policy import Rule
from instep.sync.schema_changes.answer import approving
from open_changes import waiting
from sync_world import MakeWorld, World, cursor, preset

SHOWN = "CREATE TABLE t (id int PRIMARY KEY, a int, b text)"
BESIDE = [
    ("renamed, and the new type applied", "column.renamed", ["RENAME a TO z", "ALTER z TYPE bigint"]),
    ("retyped, and the new name applied", "column.widened", ["RENAME a TO z", "ALTER z TYPE bigint"]),
    ("the same name again, and the removal applied", "column.added", ["DROP a", "ADD a int"]),
    ("a column of a table that was renamed", "column.renamed", ["RENAME TO u", "RENAME a TO z"]),
    ("a table, and a column renamed in it", "table.renamed", ["RENAME TO u", "RENAME a TO z"]),
    ("the key's name, and its new type applied", "column.renamed", ["RENAME id TO k", "ALTER k TYPE bigint"]),
    ("the key's type, and its new name applied", "column.widened", ["RENAME id TO k", "ALTER k TYPE bigint"]),
    ("a name that meets another one", "name.collided", ['ADD "A" int', "RENAME b TO c"]),
]

COLUMNS = "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b TEXT, c DATE, d REAL, e INT)"


def blocked(world: World) -> None:
    with pytest.raises(Blocked):
        world.sync()


@pytest.mark.sampled
@pytest.mark.parametrize("status", ["approved", "rejected"])
def test_the_rest_of_a_mass_removal_waits_for_its_own_answers(make_world: MakeWorld, status: str) -> None:
    world = make_world("sqlite", policy=preset("propagate_all"))
    world.run(COLUMNS, "INSERT INTO t VALUES (1, 1, 'x', '2024-01-01', 1.5, 2)")
    world.sync()
    world.run(*(f"ALTER TABLE t DROP COLUMN {name}" for name in "abcd"))
    blocked(world)
    first, second, *rest = waiting(world.store, "shop")
    answer(world.store, [first, second], status, "ann")  # type: ignore[arg-type]
    for _ in range(2):
        world.detect()
        with pytest.raises(Blocked):
            resume(world.store, "shop", "ann")
        blocked(world)
    assert {r.id for r in waiting(world.store, "shop")} == {r.id for r in rest}
    assert {c.name for c in world.accepted("t").live} >= {r.column for r in rest}


def test_a_pause_ends_when_policy_lets_in_what_it_had_held(make_world: MakeWorld) -> None:
    world = make_world("sqlite", policy=preset("stop"))
    world.run("CREATE TABLE t (id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN n INT DEFAULT 3")
    blocked(world)
    world.policy = preset("allow_all")
    assert world.statuses(world.sync()) == {"t": "done"}
    assert world.rows("t", "id", "n") == [(1, 3)]
    assert world.store.pauses.active("shop") == []


@pytest.mark.sampled
@pytest.mark.parametrize("null", ["", "NOT NULL"])
def test_an_approved_key_is_not_asked_again_for_what_policy_lets_in_beside(make_world: MakeWorld, null: str) -> None:
    world = make_world("sqlite")
    world.run(f"CREATE TABLE t (id INTEGER {null} PRIMARY KEY, k INT {null})", "INSERT INTO t VALUES (1, 5), (2, 6)")
    world.sync()
    world.run(
        "DROP TABLE t", f"CREATE TABLE t (id INTEGER {null}, k INT {null} PRIMARY KEY)", "INSERT INTO t VALUES (1, 5)"
    )
    world.sync()
    assert set(world.reviews("open").values()) == {"pause_table"}
    world.answer("approved")
    assert world.statuses(world.sync()) == {"t": "done"}
    assert world.events("change.reopened") == []
    assert world.accepted("t").key == ("k",)
    assert world.differing() == {}


def test_a_table_with_a_history_that_is_born_again_with_another_type_of_its_key_is_another_one(
    make_world: MakeWorld,
) -> None:
    world = make_world("sqlite")
    world.settings["t"] = TableSettings(history=True)
    world.run("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'a')")
    world.sync()
    world.run("DROP TABLE t")
    world.settled()
    world.run("CREATE TABLE t (id TEXT PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES ('1', 'w'), ('x', 'y')")
    for _ in range(2):
        assert world.statuses(world.sync())["t"] == "done"
        assert world.differing() == {}
    assert world.rows("t", "id", "v") == [("1", "w"), ("x", "y")]
    assert world.rows_at(("shop", "t__v1"), "id", "v") == [(1, "a")]


def test_a_column_that_gets_its_first_type_is_read_again(make_world: MakeWorld) -> None:
    """SQLite's columns need none."""
    world = make_world("sqlite", policy=preset("allow_all", Rule(on=("column.narrowed",), decide="ignore")))
    world.settings["t"] = cursor("at")
    rows = "INSERT INTO t VALUES (1, 100, x'4142'), (2, 200, x'71')"
    world.run("CREATE TABLE t (id INTEGER PRIMARY KEY, at INT, v)", rows)
    world.sync()
    world.run("DROP TABLE t", "CREATE TABLE t (id INTEGER PRIMARY KEY, at INT, v BLOB)", rows)
    world.sync()
    found = dict(world.rows("t", "id", "v"))
    world.sync(full=True)
    assert dict(world.rows("t", "id", "v")) == found


@pytest.mark.sampled
@pytest.mark.parametrize("applied_by", ["sync", "apply"])
@pytest.mark.parametrize(("kind", "changes"), [c[1:] for c in BESIDE], ids=[c[0] for c in BESIDE])
def test_what_waits_beside_an_applied_change_is_approved_as_it_was_shown(
    make_world: MakeWorld, kind: str, changes: list[str], applied_by: str
) -> None:
    world = make_world(policy=preset("allow_all", Rule((kind,), "review"), backfill="column"))
    world.run(SHOWN, "INSERT INTO t VALUES (1, 10, 'x')")
    world.sync()
    table = "t"
    for change in changes:
        world.run(f"ALTER TABLE {table} {change}")
        table = "u" if change == "RENAME TO u" else table
    if applied_by == "sync":
        world.sync()
    else:
        world.evolve()
    shown = waiting(world.store, "shop")
    assert {r.kind for r in shown} == {kind}
    approving(world.context, shown)
    world.answer("approved")
    world.sync()
    assert waiting(world.store, "shop") == []
    assert world.differing() == {}


@pytest.mark.parametrize("kind", ["sqlite", "mysql"])
def test_a_suspected_rename_beside_its_applied_sides_is_approved_as_it_was_shown(
    make_world: MakeWorld, kind: str
) -> None:
    world = make_world(kind)
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)")
    world.run("INSERT INTO t VALUES (1, 11), (2, 12), (3, 13), (4, 14), (5, 15), (6, 16), (7, 17), (8, 18)")
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN a TO z")
    for _ in range(3):
        world.sync()
        shown = world.store.reviews.find("shop", ("open",))
        assert "column.renamed" in {r.kind for r in shown}
        approving(world.context, [r for r in shown if r.kind == "column.renamed"])


@pytest.mark.parametrize("key", [" PRIMARY KEY", ""])
def test_a_name_that_meets_another_one_in_a_new_table_is_approved_as_it_was_shown(
    make_world: MakeWorld, key: str
) -> None:
    world = make_world()
    world.run(f'CREATE TABLE t (id int{key}, "A" int, a int)', "INSERT INTO t VALUES (1, 20, 10)")
    world.sync()
    shown = waiting(world.store, "shop")
    assert [r.kind for r in shown] == ["name.collided"]
    approving(world.context, shown)
