"""What else becomes of a table that keeps its history: switched on late, changed, undone, replayed, rebuilt, killed."""

from __future__ import annotations

from typing import Any

import pytest
from version_checks import versions

from contract.destinations import DESTINATIONS
from instep.crash import VARIABLE
from instep.project.sections.tables import TableSettings
from instep.schema.policy.policy import Rule
from instep.schema.selection.selection import Pattern, Selection
from instep.sync.operations import set_key
from instep.sync.quarantine.replay import replay, total
from instep.sync.schema_changes import undo
from lake import SPARK
from sync_world import MakeWorld, World, counts, preset

HISTORY = TableSettings(history=True)
SETUP = ("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, u INTEGER)", "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1)")


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return into(make_world("sqlite", settings={"t": HISTORY}), "duckdb")


@pytest.fixture
def from_postgres(make_world: MakeWorld) -> World:
    """A source with ids."""
    return into(make_world("postgres", settings={"t": HISTORY}), "duckdb")


def into(world: World, kind: str) -> World:
    destination: Any = DESTINATIONS[kind](world.folder)
    world.destination = destination
    return world


def done(world: World, **wanted: Any) -> None:
    report = world.sync(**wanted)
    assert not [t for t in report.tables if t.status != "done"]


def why(world: World) -> str:
    """The error of the only table."""
    [one] = world.sync().tables
    assert one.status == "failed"
    return one.error


LATE = [
    "duckdb",
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("delta", "iceberg")),
    pytest.param("iceberg by Spark", marks=[pytest.mark.slow, *SPARK]),
]


@pytest.mark.parametrize("kind", LATE)
def test_switched_on_for_a_loaded_table(world: World, kind: str) -> None:
    into(world, kind).settings = {}
    world.engine = "spark" if "Spark" in kind else "local"
    world.run(*SETUP, "INSERT INTO t VALUES (3, 'c', 1)")
    done(world)
    world.run("UPDATE t SET a = 'B' WHERE id = 2", "DELETE FROM t WHERE id = 3")
    done(world)
    world.settings = {"t": HISTORY}
    assert [s.text.partition("t.")[2] for s in world.preview().plan.steps][:1] == [
        "_instep_valid_from added (timestamptz)"
    ]
    world.run("UPDATE t SET a = 'A' WHERE id = 1")
    done(world)
    assert versions(world, "id", "a") == [
        (1, "A", 3, None), (1, "a", 1, 3), (2, "B", 2, None), (3, "c", 2, 2)
    ]  # fmt: skip
    assert world.differing() == {}
    assert world.preview().plan.steps == ()


@pytest.mark.sampled
@pytest.mark.parametrize("point", ["history.begun", "history.written", "sync.commit.before", "sync.commit.after"])
def test_after_a_crash_the_next_sync_makes_the_same_versions(
    world: World, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.settings = {}
    world.run(*SETUP)
    done(world)
    world.settings = {"t": HISTORY}
    world.run("UPDATE t SET a = 'A' WHERE id = 1", "DELETE FROM t WHERE id = 2")
    monkeypatch.setenv(VARIABLE, f"{point}=raise")
    assert world.statuses(world.sync()) == {"t": "failed"}
    monkeypatch.delenv(VARIABLE)
    done(world)
    assert versions(world, "id", "a") == [(1, "A", 2, None), (1, "a", 1, 2), (2, "b", 1, 2)]


def test_switched_off_it_goes_on(world: World) -> None:
    world.run(*SETUP)
    done(world)
    world.settings = {}
    assert any("continues to keep its history" in text for text in world.preview().plan.remarks)
    world.run("UPDATE t SET a = 'A' WHERE id = 1")
    done(world)
    assert versions(world, "id", "a") == [(1, "A", 2, None), (1, "a", 1, 2), (2, "b", 1, None)]


REFUSED = [
    ("CREATE TABLE t (a TEXT, u INTEGER)", HISTORY, "no primary key"),
    (SETUP[0], HISTORY.model_copy(update={"mode": "append", "cursor": "u"}), "compares no rows"),
    (SETUP[0], HISTORY.model_copy(update={"mode": "full_refresh"}), "compares no rows"),
    (SETUP[0], HISTORY.model_copy(update={"deletes": "hard"}), "removes rows"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("table", "settings", "reason"), REFUSED)
def test_what_cannot_be_kept_is_refused(world: World, table: str, settings: TableSettings, reason: str) -> None:
    world.run(table)
    world.settings = {"t": settings}
    assert reason in why(world)
    world.settings = {"t": settings.model_copy(update={"history": False})}
    done(world)
    assert not world.accepted("t").history, "nothing was begun that cannot be taken back"


def test_another_table_of_the_same_key_goes_on(from_postgres: World) -> None:
    world = from_postgres
    world.run("CREATE TABLE t (id int PRIMARY KEY, a text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    done(world)
    world.run("UPDATE t SET a = 'A' WHERE id = 1")
    done(world)
    world.policy = preset("propagate_all")
    world.run("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, a text, b int)",
              "INSERT INTO t VALUES (1, 'A', 1), (3, 'c', 3)")  # fmt: skip
    done(world)
    assert versions(world) == [
        (1, "A", 1, 2, None), (1, "a", None, 1, 2), (2, "b", None, 1, 3), (3, "c", 3, 3, None),
    ]  # fmt: skip
    assert world.differing() == {}
    assert world.preview().plan.steps == ()


def test_another_key_is_refused_and_a_rebuild_keeps_a_copy(from_postgres: World) -> None:
    world = from_postgres
    world.run("CREATE TABLE t (id int PRIMARY KEY, a text NOT NULL)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    done(world)
    world.run("UPDATE t SET a = 'A' WHERE id = 1")
    done(world)
    world.policy = preset("allow_all", Rule(("key.changed", "table.replaced"), "apply"))
    world.run("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (id, a)")
    assert "its versions have the old one" in str((world.sync().notes, world.sync().tables))
    assert versions(world) == [(1, "A", 2, None), (1, "a", 1, 2), (2, "b", 1, None)]
    for way in ("rekey", "clear"):
        assert "keeps its history" in set_key.prepare(world.context, "public.t", ["id", "a"], way).blocker
    _, place = set_key.carry_out(world.context, set_key.prepare(world.context, "public.t", ["id", "a"], "rebuild"))
    done(world)
    assert versions(world) == [(1, "A", 1, None), (2, "b", 1, None)]
    assert place is not None
    assert len(world.rows_at(place, "id", "a", deleted=True)) == 3


def test_what_comes_by_a_cursor_waits_for_another_key(world: World) -> None:
    """By the old key a new row would be the next version of one that the source still has."""
    world.settings = {"t": HISTORY.model_copy(update={"cursor": "u"})}
    table = "id INTEGER NOT NULL, b INTEGER NOT NULL, a TEXT, u INTEGER"
    world.run(f"CREATE TABLE t ({table}, PRIMARY KEY (id))", "INSERT INTO t VALUES (1, 0, 'x', 1), (2, 0, 'y', 5)")
    done(world)
    world.policy = preset("allow_all", Rule(("key.changed",), "apply"))
    world.run(f"CREATE TABLE new ({table}, PRIMARY KEY (id, b))", "INSERT INTO new SELECT * FROM t", "DROP TABLE t",
              "ALTER TABLE new RENAME TO t", "INSERT INTO t VALUES (1, 1, 'one', 10)")  # fmt: skip
    for _ in range(2):
        [one] = world.sync().tables
        assert (one.status, "its versions have the old one" in one.error) == ("paused", True), one
    assert versions(world, "id", "b", "a") == [(1, 0, "x", 1, None), (2, 0, "y", 1, None)]
    set_key.carry_out(world.context, set_key.prepare(world.context, "main.t", ["id", "b"], "rebuild"))
    done(world)
    assert versions(world, "id", "b", "a") == [(1, 0, "x", 1, None), (1, 1, "one", 1, None), (2, 0, "y", 1, None)]


def test_a_column_is_filled_in_place(world: World) -> None:
    """By a cursor, so that rows that do not change are not read."""
    world.settings = {"t": HISTORY.model_copy(update={"cursor": "u"})}
    world.run(*SETUP)
    done(world)
    world.run("UPDATE t SET a = 'A', u = 2 WHERE id = 1")
    done(world)
    world.policy = preset("allow_all", backfill="column")
    world.run("ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 7", "UPDATE t SET a = 'AA', u = 3 WHERE id = 1")
    done(world)
    done(world)
    assert versions(world, "id", "a", "more") == [
        (1, "A", None, 2, 3), (1, "AA", 7, 3, None), (1, "a", None, 1, 2), (2, "b", 7, 1, None),
    ]  # fmt: skip
    assert world.differing() == {}


def test_a_whole_read_by_hand_makes_no_versions_of_what_stands_still(world: World) -> None:
    world.settings = {"t": HISTORY.model_copy(update={"cursor": "u"})}
    world.run(*SETUP)
    done(world)
    world.run("ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 7")
    done(world)
    done(world, full=True)
    done(world, full=True)
    assert versions(world, "id", "more") == [(1, 7, 1, None), (2, 7, 1, None)]


def test_held_values_go_into_the_current_version(from_postgres: World) -> None:
    world = from_postgres
    world.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 5), (2, 6)")
    done(world)
    world.policy = preset("approve")
    world.run("ALTER TABLE t ALTER COLUMN v TYPE text USING v::text", "UPDATE t SET v = 'odd' WHERE id = 2")
    done(world)
    world.run("UPDATE t SET v = 'strange' WHERE id = 2")
    done(world)
    world.answer("approved")
    world.evolve()
    assert total(replay(world.context)) == {"replayed": 1, "superseded": 1, "held": 0}
    assert versions(world) == [(1, "5", 1, None), (2, "6", 1, 2), (2, "strange", 2, None)]
    done(world)
    assert world.differing() == {}


def test_types_and_names_change_in_all_versions(from_postgres: World) -> None:
    world = from_postgres
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int, b text)", "INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y')")
    done(world)
    world.run("UPDATE t SET a = 10 WHERE id = 1")
    done(world)
    world.run("ALTER TABLE t ALTER COLUMN a TYPE bigint", "ALTER TABLE t RENAME COLUMN b TO c",
              "ALTER TABLE t RENAME COLUMN id TO key", "UPDATE t SET a = 5000000000 WHERE key = 2",
              "ALTER TABLE t RENAME TO s")  # fmt: skip
    world.settings["s"] = HISTORY
    done(world)
    assert versions(world, name="s") == [
        (1, 1, "x", 1, 2), (1, 10, "x", 2, None), (2, 2, "y", 1, 3), (2, 5000000000, "y", 3, None),
    ]  # fmt: skip
    assert world.differing() == {}


def test_a_dropped_column_comes_back_in_the_versions_from_before(from_postgres: World) -> None:
    world = from_postgres
    world.policy = preset("propagate_all")
    world.run("CREATE TABLE t (id int PRIMARY KEY, a text, b int)", "INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2)")
    done(world)
    world.run("UPDATE t SET a = 'X' WHERE id = 1")
    done(world)
    world.run("ALTER TABLE t DROP COLUMN a")
    done(world)
    world.run("UPDATE t SET b = 20 WHERE id = 2")
    done(world)
    [review] = [r for r in world.store.reviews.find("shop", ("applied",)) if r.kind == "column.removed"]
    undo.apply_undo(world.context, undo.prepare(world.context, [review]))
    assert versions(world, "id", "a", "b") == [
        (1, "X", 1, 2, None), (1, "x", 1, 1, 2), (2, "y", 2, 1, 3), (2, None, 20, 3, None),
    ]  # fmt: skip


def test_a_column_that_is_hashed_later_is_refused(world: World) -> None:
    world.run(*SETUP)
    done(world)
    world.selection = Selection(hashed=(Pattern("*.t.a"),))
    assert "the history of its table holds it in clear" in why(world)
    assert any("is not synced" in note for note in world.preview().partial)
    world.selection = Selection()
    done(world)
    assert versions(world) == [(1, "a", 1, 1, None), (2, "b", 1, 1, None)]


@pytest.mark.slow
def test_a_partitioned_table(world: World) -> None:
    into(world, "iceberg").settings = {"t": HISTORY.model_copy(update={"partition": ("u",)})}
    world.run(*SETUP)
    done(world)
    world.run("UPDATE t SET u = 2 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    done(world)
    assert versions(world) == [(1, "a", 1, 1, 2), (1, "a", 2, 2, None), (2, "b", 1, 1, 2)]


def test_the_counts_of_a_sync(world: World) -> None:
    world.run(*SETUP)
    assert counts(world.sync(), "t") == (2, 2, 0, 0, 0)
    world.run("UPDATE t SET a = 'A' WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (3, 'c', 1)")
    assert counts(world.sync(), "t") == (2, 1, 1, 1, 0)
