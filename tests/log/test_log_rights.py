"""What a server or a user lacks is said with the statement that brings it; and the commands that show the log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from log_world import LogWorld

from instep.bootstrap import open_project
from instep.cli.main import main
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


@pytest.mark.parametrize("limit", [0, 2])
def test_a_slot_waits_for_the_transactions_that_write(database: Database, tmp_path: Path, limit: float) -> None:
    """Longer than a statement of ours may wait for a lock of a table; in vain it says whom it has waited for."""
    config = database.config.model_copy(update={"statement_timeout": limit})
    world = LogWorld.of(replace(database, config=config), tmp_path)
    world.run(*TABLE)
    with world.transaction() as execute, ThreadPoolExecutor(1) as beside:
        [(process,)] = execute("INSERT INTO t VALUES (2, 2) RETURNING pg_backend_pid()").fetchall()
        running = beside.submit(world.sync)
        if not limit:
            with pytest.raises(TimeoutError):
                running.result(2.5)
            execute("COMMIT")
        report = running.result(300)
    if not limit:
        assert report.status == "done"
        assert world.differing() == {}
        world.close()
        return
    world.close()
    error = report.tables[0].error
    assert "could not be made within 2 s: transactions of the server have not ended" in error
    assert f"process {process} of" in error
    assert "max_replication_slots" not in error


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
    assert "public.t: cdc, deletes soft (key id; changes from the source's log)" in run("plan")
    run("apply", "--yes")
    assert "instep_shop_" in run("source", "log", "show")
    assert '"mode"' in run("table", "show", "public.t", "--output", "json")
    database.execute("SELECT pg_create_logical_replication_slot('left_behind', 'pgoutput')")
    assert "dropped slot left_behind" in run("source", "log", "drop", "shop", "--slot", "left_behind", "--yes")
    assert "there was no slot" in run("source", "log", "drop", "--yes")
    assert "log: slot" in run("status")
    run("sync")
    release = "To release it: `instep source log drop shop`"
    assert release not in run("source", "log", "show")
    run("pause")
    for words in (("source", "log", "show"), ("status",)):
        assert release in " ".join(run(*words).split())


def test_two_projects_of_one_name(
    project: Callable[..., Callable[..., str]], database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each has a slot of its own at the server, and misses nothing that the other has read."""
    run = project("postgres", database.config)
    for statement in TABLE:
        database.execute(statement)
    twin = tmp_path / "elsewhere" / tmp_path.name
    twin.mkdir(parents=True)
    shutil.copy(tmp_path / "instep.yml", twin)

    def runs(*words: str) -> str:
        assert main(["--project", str(twin), *words]) == 0
        return capsys.readouterr().out

    for _ in range(2):
        run("sync")
        runs("sync")
        database.execute("UPDATE t SET v = v + 1")
    assert database.execute("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(2,)]
    run("sync")
    runs("sync")
    run("verify")
    runs("verify")


def test_a_slot_of_an_earlier_version_is_kept(
    project: Callable[..., Callable[..., str]], database: Database, tmp_path: Path
) -> None:
    """Its name is without the store's id; where cursors are in it, it goes on."""
    run = project("postgres", database.config)
    with open_project(tmp_path) as app:
        earlier, own = app.project.own_log_name("shop"), app.log_names("shop")
        assert own is not None
        assert own.slot == app.project.own_log_name("shop", app.store.installation.id()) != earlier
        cursor = json.dumps({"log": {"slot": earlier, "at": "0/1", "server": "s", "shape": {}}})
        app.store.cursors.save("shop", {("public", "t"): cursor}, run="r", fence=1)
    assert f"slot {earlier} " in run("source", "log", "show")


@pytest.mark.parametrize("change", [("shop:", "other:"), ("mode: cdc", "mode: auto")])
def test_a_slot_that_its_connection_has_left_behind_is_listed_until_it_is_dropped(
    project: Callable[..., Callable[..., str]], database: Database, tmp_path: Path, change: tuple[str, str]
) -> None:
    """The connection was removed, or no longer follows the log. No slot of anybody else is listed."""
    run = project("postgres", database.config)
    for statement in TABLE:
        database.execute(statement)
    database.execute("SELECT pg_create_logical_replication_slot('of_others', 'pgoutput')")
    run("sync")
    assert json.loads(run("source", "log", "show", "--output", "json"))["abandoned_slots"] == []
    file = tmp_path / "instep.yml"
    connections, text = file.read_text().partition("connections:")[1:][1], file.read_text()
    file.write_text(text.replace(connections, connections.replace(*change)))
    [found] = json.loads(run("source", "log", "show", "--output", "json"))["abandoned_slots"]
    assert (found["connection"], found["slot"][:12]) == ("shop", "instep_shop_")
    assert f"to drop it run `{found['command']}`" in " ".join(run("source", "log", "show").split())
    words = found["command"].split()[1:]
    assert f"dropped slot {found['slot']}" in run(*words, "--yes")
    assert json.loads(run("source", "log", "show", "--output", "json"))["abandoned_slots"] == []
    rest = database.execute("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
    assert [name for (name,) in rest] == ["of_others"]
    database.execute("SELECT pg_drop_replication_slot('of_others')")
