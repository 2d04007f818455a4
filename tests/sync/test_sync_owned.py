"""A connection's tables are its own, and stay where they were loaded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.errors import Blocked
from instep.schema.planning.naming import Naming
from instep.sync.context import SyncContext
from instep.sync.loading.engine import LocalEngine
from instep.sync.run import RunScope, sync
from instep.sync.schema_changes.evolve import preview
from sync_world import MakeWorld, World

TABLE = "CREATE TABLE t (id int PRIMARY KEY, name varchar(20))"
ROWS = "INSERT INTO t VALUES (1, 'a')"


def begun(world: World) -> World:
    world.run(TABLE, ROWS)
    assert world.sync().status == "done"
    return world


def moved(world: World, namespace: str) -> SyncContext:
    naming = Naming(namespace=namespace, prefix=world.context.naming.prefix, default_schema=world.case.schema)
    return replace(world.context, naming=naming)


def test_names_belong_to_who_creates_the_tables(make_world: MakeWorld) -> None:
    world = begun(make_world("sqlite"))
    ref = (world.case.schema, "t")
    assert world.store.names.of("shop") == {ref: ("shop", "t")}
    world.run("CREATE TABLE u (id int PRIMARY KEY)", "DROP TABLE t")
    world.settled()
    assert world.store.names.of("shop") == {ref: ("shop", "t"), (world.case.schema, "u"): ("shop", "u")}


def test_a_renamed_table_takes_its_name_along(make_world: MakeWorld) -> None:
    world = begun(make_world())
    world.run("CREATE TABLE u (id int PRIMARY KEY, name varchar(20))")
    world.sync()
    world.run("ALTER TABLE t RENAME TO w", "ALTER TABLE u RENAME TO t", "ALTER TABLE w RENAME TO u")
    assert world.sync().status == "done"
    assert {t[1]: to for t, to in world.store.names.of("shop").items()} == {"t": ("shop", "t"), "u": ("shop", "u")}
    assert world.rows("u") == [(1, "a")]


def test_a_loaded_connection_keeps_its_namespace(make_world: MakeWorld) -> None:
    world = begun(make_world("sqlite"))
    elsewhere = moved(world, "other")
    for attempt in (lambda: sync(elsewhere, RunScope(), engine=LocalEngine()), lambda: preview(elsewhere)):
        with pytest.raises(Blocked, match="already loaded into namespace 'shop', which stays") as refused:
            attempt()
        assert "write `namespace: shop`" in refused.value.hint
    assert world.destination.schema.tables() == [("shop", "t")]
    assert world.sync().status == "done"


def test_before_its_first_load_it_may_move(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.run(TABLE, ROWS)
    world.preview()
    sync(moved(world, "other"), RunScope(), engine=LocalEngine())
    assert world.destination.schema.tables() == [("other", "t")]


def test_only_tables_that_collide_are_refused(make_world: MakeWorld) -> None:
    world = begun(make_world("sqlite"))
    world.run("CREATE TABLE u (id int PRIMARY KEY)")
    other = sync(replace(world.context, name="other"), RunScope(), engine=LocalEngine())
    assert {t.table[1]: t.status for t in other.tables} == {"t": "failed", "u": "done"}
    [failed] = [t for t in other.tables if t.status == "failed"]
    assert "connection shop writes shop.t: give other its own namespace" in failed.error
    assert set(world.store.names.of("other").values()) == {("shop", "u")}
    own = world.sync()
    assert {t.table[1]: t.status for t in own.tables} == {"t": "done", "u": "failed"}


def test_the_same_name_in_another_lake_is_no_conflict(make_world: MakeWorld) -> None:
    world = begun(make_world("sqlite"))
    lake = IcebergDestination(IcebergConfig.resolved(name="second", warehouse=str(world.folder / "second")))
    there = replace(world.context, name="other", destination=lake, destination_name="second")
    assert sync(there, RunScope(), engine=LocalEngine()).status == "done"
    assert lake.write.read(("shop", "t")).read_all().num_rows == 1
