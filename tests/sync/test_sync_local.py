"""Syncs without a JVM: the same tables as with Spark, and a plain word where only Spark can merge."""

from __future__ import annotations

import sys

import pytest

from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from sync_world import MakeWorld, World, counts, cursor

SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, a varchar(20), n decimal(10,2))",
    "INSERT INTO t VALUES (1, 'x', 1.50), (2, NULL, NULL), (3, '', -0.01)",
    "CREATE TABLE keyless (v int)",
    "INSERT INTO keyless VALUES (1), (1), (NULL)",
)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["postgres", "mysql", "sqlite"])
def test_first_load_upsert_and_schema_change(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.run(*SETUP)
    assert world.statuses(world.sync()) == {"t": "done", "keyless": "done"}
    assert world.differing() == {}
    world.run(
        "UPDATE t SET a = 'y' WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
        "ALTER TABLE t ADD COLUMN more int",
        "INSERT INTO t VALUES (4, 'z', 0, 5)",
    )
    assert counts(world.sync(), "t") == (3, 1, 1, 1, 0)
    assert world.differing() == {}
    assert world.rows("t", "id", "a", "more") == [(2, "y", None), (3, "", None), (4, "z", 5)]


def test_no_session_is_asked_for(make_world: MakeWorld) -> None:
    def never() -> None:
        raise AssertionError("no session is needed")

    world = make_world("sqlite")
    world.start = never
    world.run(*SETUP)
    before = "pyspark.sql.session" in sys.modules
    world.sync(again=1)
    assert ("pyspark.sql.session" in sys.modules) == before


@pytest.fixture
def by_spark_only(make_world: MakeWorld) -> World:
    world = make_world("sqlite")
    lake = IcebergConfig.resolved(name="lake", warehouse=str(world.folder / "lake"), upsert_rows=0)
    world.destination = IcebergDestination(lake)
    return world


def test_a_merge_that_only_spark_can_do_fails_for_its_table(by_spark_only: World) -> None:
    world = by_spark_only
    world.settings = {"t": cursor("id")}
    world.run(*SETUP)
    assert world.statuses(world.sync()) == {"t": "done", "keyless": "done"}
    world.run("INSERT INTO t VALUES (4, 'z', 0)")
    report = world.sync()
    assert world.statuses(report) == {"t": "failed", "keyless": "done"}
    (error,) = (t.error for t in report.tables if t.error)
    assert error.startswith("table shop.t cannot be merged without Spark")
    assert len(world.rows("t")) == 3
