"""Syncs from PostgreSQL into a DuckDB file, without a JVM: the same promises as over a lake."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from instep.destinations.base import Commit
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.model import Review
from instep.schema.changes.describe import TableRemoved
from instep.schema.planning.step import step
from instep.sync.quarantine.replay import replay, total
from instep.sync.schema_changes.undo import apply_undo, find, prepare
from sync_world import MakeWorld, World, counts, cursor, preset

SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, a varchar(20), n decimal(10,2), at timestamptz, j jsonb, u uuid, l int[])",
    "INSERT INTO t VALUES (1, 'x', 1.50, '2026-01-01Z', '{\"k\": 1}', '00000000-0000-0000-0000-000000000001', '{1,2}'),"
    " (2, NULL, NULL, NULL, NULL, NULL, NULL), (3, '', -0.01, '2026-01-03Z', '[]', NULL, '{}')",
    "CREATE TABLE keyless (v int)",
    "INSERT INTO keyless VALUES (1), (1), (NULL)",
)


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return filed(make_world())


def filed(world: World) -> World:
    """The world with a DuckDB file in the place of its lake."""
    config = DuckDbConfig.resolved(name="warehouse", path=str(world.folder / "shop.duckdb"))
    destination: Any = DuckDbDestination(config)
    world.destination, world.engine = destination, "local"
    return world


def applied(world: World, *kinds: str) -> list[Review]:
    return [r for r in world.store.reviews.find("shop", ["applied"]) if r.kind in kinds]


def test_first_load_upsert_and_schema_change(world: World) -> None:
    world.run(*SETUP)
    assert world.statuses(world.sync()) == {"t": "done", "keyless": "done"}
    assert world.differing() == {}
    world.run(
        "UPDATE t SET a = 'y' WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
        "ALTER TABLE t ADD COLUMN more int",
        "INSERT INTO t VALUES (4, 'z', 0, NULL, NULL, NULL, NULL, 5)",
        "DELETE FROM keyless WHERE v IS NULL",
    )
    assert counts(world.sync(), "t") == (3, 1, 1, 1, 0)
    assert world.differing() == {}
    assert world.rows("t", "id", "a", "more") == [(2, "y", None), (3, "", None), (4, "z", 5)]
    assert len(world.rows("t", "id", deleted=True)) == 4


def test_only_what_is_new_is_read_with_a_cursor(world: World) -> None:
    world.settings = {"t": cursor("at")}
    world.run(*SETUP)
    world.sync()
    world.run(
        "UPDATE t SET a = 'later', at = '2026-02-01Z' WHERE id = 1", "DELETE FROM t WHERE id = 3",
        "INSERT INTO t VALUES (4, 'z', 0, '2026-02-02Z')",
    )  # fmt: skip
    report = world.sync()
    assert counts(report, "t")[1:] == (1, 1, 1, 0)
    assert world.rows("t", "id", "a") == [(1, "later"), (2, None), (4, "z")]


RENAME = ("ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE t RENAME COLUMN n TO a", "UPDATE t SET a = 7 WHERE id = 2")


def test_columns_that_are_renamed_keep_their_rows(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run(*RENAME)
    world.sync()
    assert world.differing() == {}
    assert world.schema("t").startswith("id int32!, b string(20), a decimal(10,2)")


TYPES = [
    ("n", "decimal(14,4)", "n decimal(14,4)"),
    ("id", "bigint", "id int64!"),
    ("l", "bigint[]", "l array(int64)"),
    ("a", "text", "a string"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("column", "kind", "expected"), TYPES)
def test_a_wider_type_arrives(world: World, column: str, kind: str, expected: str) -> None:
    world.run(*SETUP)
    world.sync()
    world.run(f"ALTER TABLE t ALTER COLUMN {column} TYPE {kind}", "UPDATE t SET at = now() WHERE id = 1")
    world.sync()
    assert world.differing() == {}
    assert expected in world.schema("t")


def test_a_dropped_column_comes_back_with_later_rows(world: World) -> None:
    world.policy = preset("propagate_all")
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN a")
    world.sync()
    world.run("INSERT INTO t (id) VALUES (9)", "UPDATE t SET n = 8 WHERE id = 1")
    world.sync()
    assert "a" not in world.accepted("t").by_name
    (review,) = applied(world, "column.removed")
    made = prepare(world.context, find(world.context, review.id))
    assert any("rows written since the drop (1)" in limit for limit in made.limits), made.limits
    apply_undo(world.context, made)
    assert world.rows("t", "id", "a") == [(1, "x"), (2, None), (3, ""), (9, None)]


def test_a_full_load_keeps_what_can_be_taken_back(world: World) -> None:
    world.policy = preset("propagate_all")
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN a")
    world.sync()
    world.sync(full=True)
    (review,) = applied(world, "column.removed")
    apply_undo(world.context, prepare(world.context, find(world.context, review.id)))
    assert world.rows("t", "id", "a") == [(1, "x"), (2, None), (3, "")]


def test_values_that_do_not_fit_are_held_and_replayed(world: World) -> None:
    world.run("CREATE TABLE m (id int PRIMARY KEY, v int)", "INSERT INTO m VALUES (1, 5), (2, 6), (3, 7)")
    world.sync()
    world.policy = preset("approve")
    world.run(
        "ALTER TABLE m ALTER COLUMN v TYPE text USING v::text",
        "UPDATE m SET v = 'odd' WHERE id = 2",
        "UPDATE m SET v = 'strange' WHERE id = 3",
    )
    assert counts(world.sync(), "m")[4] == 2
    assert world.rows("m", "id", "v") == [(1, 5), (2, None), (3, None)]
    world.answer("approved")
    world.evolve()
    assert world.rows("m", "id", "v") == [(1, "5"), (2, None), (3, None)]
    assert total(replay(world.context)) == {"replayed": 2, "superseded": 0, "held": 0}
    assert world.rows("m", "id", "v") == [(1, "5"), (2, "odd"), (3, "strange")]
    assert total(replay(world.context))["replayed"] == 0
    assert world.differing() == {}


def test_a_table_is_renamed(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t RENAME TO s", "UPDATE s SET a = 'new' WHERE id = 1")
    assert counts(world.sync(), "s")[2] == 1
    assert world.differing() == {}
    assert sorted(world.tables()) == ["keyless", "s"]


def test_a_dropped_table_comes_back_for_its_time(world: World) -> None:
    world.run(*SETUP)
    world.sync()
    ref, source = ("shop", "keyless"), world.accepted("keyless").id
    (there,) = world.destination.schema.inspect([ref]).tables
    world.destination.write.claim(ref, 10)
    world.destination.schema.execute(ref, [step(ref, TableRemoved(there))], None, Commit("run", 10))
    assert world.destination.schema.foreign([ref]) == {}
    assert world.destination.lifecycle.purge_expired([ref], 10) == []
    assert world.destination.lifecycle.dropped(ref, source)
    world.destination.schema.undrop_table(ref, there, Commit("run", 10))
    assert world.rows("keyless", "v") == [(1,), (1,), (None,)]


def test_a_column_that_was_dropped_by_hand_is_made_and_read_again(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a text, b int)", "INSERT INTO t VALUES (1, 'x', 10), (2, 'y', 20)")
    world.sync()
    with duckdb.connect(world.folder / "shop.duckdb") as by_hand:
        by_hand.execute("ALTER TABLE shop.shop.t DROP COLUMN a")
    world.detect()
    world.answer("approved", "destination.drifted")
    assert world.statuses(world.sync()) == {"t": "done"}
    assert world.rows("t", "id", "a", "b") == [(1, "x", 10), (2, "y", 20)]
    assert world.differing() == {}


def test_values_that_turn_out_not_to_fit_are_no_other_tables_trouble(world: World) -> None:
    """A day that somebody wrote into the file manually has no moment: its table keeps its type, the others continue."""
    world.run("CREATE TABLE t (id int PRIMARY KEY, d date)", "CREATE TABLE o (id int PRIMARY KEY, a int)")
    world.run("INSERT INTO t VALUES (1, '2024-01-01'), (2, '2024-01-02')", "INSERT INTO o VALUES (1, 1)")
    world.sync()
    with duckdb.connect(str(world.folder / "shop.duckdb")) as file:
        file.execute("UPDATE shop.shop.t SET d = DATE '12000-01-01' WHERE id = 1")
    world.run("ALTER TABLE t ALTER d TYPE timestamp", "ALTER TABLE o ADD b int", "INSERT INTO o VALUES (2, 2, 2)")
    report = world.sync()
    assert world.statuses(report) == {"t": "done", "o": "done"}
    assert "column 'd': values do not fit timestamp" in " ".join(report.notes)
    assert world.schema("o") == "id int32!, a int32, b int32"
    assert world.rows("o") == [(1, 1, None), (2, 2, 2)]
    world.sync()
    assert world.schema("t") == "id int32!, d timestamp", "the sync before has corrected the value"
    assert world.differing() == {}
