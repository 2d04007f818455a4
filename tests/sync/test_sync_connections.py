"""Syncs over unusual ways to the source: a pooler, a replica, no shared read point, few connections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from contract.sources import Case
from instep.sources.mysql.source import MySqlSource
from instep.sources.postgres.source import PostgresSource
from pooler import pooled
from postgres_server import Database, free_port
from sync_world import MakeWorld, World

SETUP = (
    "CREATE TABLE a (id int PRIMARY KEY, v varchar(20))",
    "INSERT INTO a VALUES (1, 'x'), (2, NULL), (3, '')",
    "CREATE TABLE b (id int PRIMARY KEY)",
    "INSERT INTO b VALUES (1), (2)",
)


def through(world: World, change: Callable[[Any], Any]) -> World:
    """The world with another configuration of its source."""
    plain: Case = world.case

    def source(**options: Any) -> Any:
        made: Any = plain.source(**options)
        kind: Any = PostgresSource if isinstance(made, PostgresSource) else MySqlSource
        return kind(change(made.config))

    world.case = replace(plain, source=source)
    return world


def synced(world: World) -> tuple[str, ...]:
    """Loads, changes and loads again; answers what the reports note."""
    world.run(*SETUP)
    first = world.sync()
    assert world.statuses(first) == {"a": "done", "b": "done"}
    world.run("UPDATE a SET v = 'y' WHERE id = 2", "DELETE FROM b WHERE id = 1")
    notes = (*first.notes, *world.settled().notes)
    assert world.differing() == {}
    return notes


def test_without_a_shared_read_point_all_is_read_in_one_transaction_and_said(make_world: MakeWorld) -> None:
    world = make_world(restricted=True)
    world.run("REVOKE EXECUTE ON FUNCTION pg_export_snapshot() FROM PUBLIC")
    assert any("the tables are read one after another" in note for note in synced(world))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_two_connections_are_enough(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    change = {"max_connections": 2, "rows_per_second": 10_000, "statement_timeout": 60}
    assert synced(through(world, lambda config: config.model_copy(update=change))) == ()


@pytest.mark.slow
def test_a_replica_that_is_gone_is_said(make_world: MakeWorld) -> None:
    world = make_world("mysql")
    gone = (f"127.0.0.1:{free_port()}",)
    notes = synced(through(world, lambda config: config.model_copy(update={"read_replica": gone})))
    assert any("no read replica can be reached" in note for note in notes)


@pytest.mark.slow
def test_a_pooler_that_pools_transactions(make_world: MakeWorld, postgres: Database) -> None:
    world = make_world()
    with pooled(postgres) as config:
        assert synced(through(world, lambda made: made.model_copy(update={"port": config.port}))) == ()
