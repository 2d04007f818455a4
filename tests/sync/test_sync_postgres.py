"""Syncs from one PostgreSQL database into another, without a JVM: the same promises as over a lake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from instep.destinations.postgres.connect import PostgresServerConfig
from instep.destinations.postgres.destination import PostgresDestination
from instep.model import Review
from instep.sync.quarantine.replay import replay, total
from instep.sync.schema_changes.undo import apply_undo, find, prepare
from postgres_server import Database, Server, make_database
from sync_world import MakeWorld, World, counts, cursor, preset

SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, a varchar(20), n decimal(10,2), at timestamptz, j jsonb, u uuid, l int[])",
    "INSERT INTO t VALUES (1, 'x', 1.50, '2026-01-01Z', '{\"k\": 1}', '00000000-0000-0000-0000-000000000001', '{1,2}'),"
    " (2, NULL, NULL, NULL, NULL, NULL, NULL), (3, '', -0.01, '2026-01-03Z', '[]', NULL, '{}')",
    "CREATE TABLE keyless (v int)",
    "INSERT INTO keyless VALUES (1), (1), (NULL)",
)


@pytest.fixture
def warehouse(postgres_server: Server, request: pytest.FixtureRequest) -> Iterator[Database]:
    """Another database of the server."""
    name = f"warehouse_{abs(hash(request.node.nodeid)) % 10**9}"
    made = make_database(postgres_server, name)
    yield made
    whole = replace(made, config=made.config.model_copy(update={"database": "postgres"}))
    whole.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@pytest.fixture
def world(make_world: MakeWorld, warehouse: Database) -> World:
    return placed(make_world(), warehouse)


def placed(world: World, warehouse: Database) -> World:
    """The world with a database in the place of its lake."""
    staging = str(world.folder / "staging")
    config = PostgresServerConfig.resolved(name="warehouse", **warehouse.login, staging=staging)
    destination: Any = PostgresDestination(config)
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


@pytest.mark.slow
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
    pytest.param("id", "bigint", "id int64!", marks=pytest.mark.slow),
    ("l", "bigint[]", "l array(int64)"),
    pytest.param("a", "text", "a string", marks=pytest.mark.slow),
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


@pytest.mark.slow
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


@pytest.fixture
def elsewhere(make_world: MakeWorld, warehouse: Database) -> World:
    """From SQLite, which holds what PostgreSQL does not."""
    return placed(make_world("sqlite"), warehouse)


def test_texts_that_it_cannot_hold_are_quarantined(elsewhere: World) -> None:
    elsewhere.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT, xmin TEXT)",
        "INSERT INTO t VALUES (1, 'a' || char(0) || 'b', 'x'), (2, 'ok', NULL)",
    )
    assert counts(elsewhere.sync(), "t") == (2, 2, 0, 0, 1)
    assert elsewhere.rows("t") == [(1, None, "x"), (2, "ok", None)]
    assert [c.alias for c in elsewhere.accepted("t").columns] == ["id", "v", "src_xmin"]
    assert total(replay(elsewhere.context)) == {"replayed": 0, "superseded": 0, "held": 1}
    elsewhere.run("UPDATE t SET v = 'better' WHERE id = 1")
    elsewhere.sync()
    assert elsewhere.rows("t", "id", "v") == [(1, "better"), (2, "ok")]
    assert elsewhere.differing() == {}


def test_a_new_column_is_filled_and_taken_back(world: World) -> None:
    world.policy = preset("propagate_all", backfill="column")
    world.run(*SETUP)
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN more int DEFAULT 7")
    world.sync()
    assert world.rows("t", "id", "more") == [(1, 7), (2, 7), (3, 7)]
    assert world.differing() == {}
    (review,) = applied(world, "column.added")
    apply_undo(world.context, prepare(world.context, find(world.context, review.id)), ("shop.t.more",))
    assert "more" not in world.accepted("t").by_name


def test_what_somebody_needs_is_kept(world: World, warehouse: Database) -> None:
    world.policy = preset("propagate_all")
    world.run(*SETUP)
    world.sync()
    warehouse.execute("CREATE VIEW shop.v AS SELECT a, n FROM shop.t")
    world.run(
        "ALTER TABLE t DROP COLUMN a",
        "ALTER TABLE t ALTER COLUMN n TYPE decimal(14,4)",
        "INSERT INTO keyless VALUES (2)",
    )
    report = world.sync()
    assert report.status == "done"
    notes = str(report.notes)
    assert "column n cannot become decimal(14,4): view shop.v uses it; to free it: drop view shop.v" in notes
    assert warehouse.execute("SELECT a FROM shop.v ORDER BY a") == [("",), ("x",), (None,)]
    warehouse.execute("DROP VIEW shop.v")
    assert world.sync().status == "done"
    assert world.differing() == {}
    assert "n decimal(14,4)" in world.schema("t")


def test_a_column_that_was_dropped_by_hand_is_made_and_read_again(world: World, warehouse: Database) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a text, b int)", "INSERT INTO t VALUES (1, 'x', 10), (2, 'y', 20)")
    world.sync()
    warehouse.execute("ALTER TABLE shop.t DROP COLUMN a")
    world.detect()
    world.answer("approved", "destination.drifted")
    assert world.statuses(world.sync()) == {"t": "done"}
    assert world.rows("t", "id", "a", "b") == [(1, "x", 10), (2, "y", 20)]
    assert world.differing() == {}
