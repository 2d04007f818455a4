"""What a server or a user lacks is said with the statement that brings it; and the commands that show the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from log_world import LogWorld

from instep.model import LogNames
from instep.sources.postgres.source import PostgresSource
from postgres_server import Database

pytestmark = pytest.mark.server

TABLE = ("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
PUBLISH = "CREATE PUBLICATION {} FOR TABLE t WITH (publish_via_partition_root = true)"


def test_a_server_without_a_logical_log(postgres: Database, tmp_path: Path) -> None:
    world = LogWorld.of(postgres, tmp_path)
    world.run(*TABLE)
    report = world.sync()
    assert "ALTER SYSTEM SET wal_level = logical;" in report.tables[0].error
    world.close()


@pytest.fixture
def restricted(world: LogWorld) -> LogWorld:
    world.run(*TABLE)
    world.restricted = True
    return world


@pytest.mark.slow
def test_a_user_who_may_not_read_the_log(restricted: LogWorld) -> None:
    assert 'ALTER ROLE "reader" REPLICATION;' in restricted.sync().tables[0].error


@pytest.mark.slow
def test_a_publication_that_others_made(restricted: LogWorld) -> None:
    restricted.run('ALTER ROLE "reader" REPLICATION')
    try:
        assert "CREATE PUBLICATION" in restricted.sync().tables[0].error
        restricted.run(PUBLISH.format("instep_shop").replace("true", "false"))
        assert "publish_via_partition_root = true);" in restricted.sync().tables[0].error
        restricted.run("DROP PUBLICATION instep_shop", PUBLISH.format("instep_shop"))
        assert restricted.sync().status == "done"
        restricted.run("UPDATE t SET v = 2", "CREATE TABLE other (id int PRIMARY KEY)")
        report = restricted.sync()
        assert "let its owner run: ALTER PUBLICATION" in " ".join(report.notes)
        assert restricted.differing() == {}
    finally:
        restricted.run('ALTER ROLE "reader" NOREPLICATION')


@pytest.mark.slow
def test_a_log_is_dropped_with_what_is_ours(world: LogWorld) -> None:
    assert world.database is not None
    log = PostgresSource(world.database.config).log(LogNames("instep_shop", "instep_shop"))
    assert not log.drop()
    world.run(*TABLE)
    world.sync()
    assert log.state().exists
    assert log.drop()
    assert not log.state().exists
    assert world.sql("SELECT count(*) FROM pg_publication") == 0
    world.run("CREATE PUBLICATION by_hand")
    PostgresSource(world.database.config).log(LogNames("instep_shop", "by_hand")).drop()
    assert world.sql("SELECT count(*) FROM pg_publication") == 1


def test_commands(project: Callable[..., Callable[..., str]], database: Database) -> None:
    run = project("postgres", database.config)
    for statement in TABLE:
        database.execute(statement)
    assert "is made by the first sync" in run("source", "test")
    assert "public.t: log, deletes soft (key id; changes from the source's log)" in run("plan")
    run("apply", "--yes")
    assert "instep_shop_" in run("source", "log", "show")
    assert '"mode"' in run("table", "show", "public.t", "--output", "json")
    database.execute("SELECT pg_create_logical_replication_slot('left_behind', 'pgoutput')")
    assert "dropped slot left_behind" in run("source", "log", "drop", "shop", "--slot", "left_behind", "--yes")
    assert "there was no slot" in run("source", "log", "drop", "--yes")
    assert "log: slot" in run("status")
