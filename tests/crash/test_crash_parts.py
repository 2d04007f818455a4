"""A part of the run dies in mid-read: Spark's JVM, its Python workers, the source's server."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from crash_checks import check_converged, check_interrupted
from crash_world import BEFORE, CHANGE, World, first_load, wait_until

from forks import Forks
from instep.sources.postgres.connect import conninfo
from postgres_server import Database, Server, launch, make_database

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of pyspark's collect()
]


def gate(table: str, row: int) -> str:
    """Reading this row waits while somebody holds the lock: a read that has begun and cannot end."""
    return f"""
        CREATE FUNCTION pass(id int) RETURNS boolean LANGUAGE plpgsql AS $$
        BEGIN
          IF id = {row} THEN
            PERFORM pg_advisory_lock_shared(7);
            PERFORM pg_advisory_unlock_shared(7);
          END IF;
          RETURN true;
        END $$;
        ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
        CREATE POLICY gate ON {table} FOR SELECT USING (pass(id));
    """


@pytest.fixture
def own_server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="instep-pg-"))
    folder.chmod(0o755)
    server = launch(folder / "server")
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def shut(database: Database) -> Iterator[None]:
    """The gate is shut inside the block; the server may end meanwhile."""
    holder = psycopg.connect(conninfo(database.config), autocommit=True)
    try:
        holder.execute("SELECT pg_advisory_lock(7)")
        yield
    finally:
        holder.close()


def wait_reading(database: Database, process: subprocess.Popen[str]) -> None:
    waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = %s"

    def reading() -> bool:
        assert process.poll() is None, f"it ended with {process.returncode} before a task read"
        return bool(database.execute(waits, database.config.database))

    wait_until(reading, what="a task to read")


def as_reader(world: World) -> None:
    """The project logs in as a user whom the gate stops."""
    world.database.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    world.write_project()
    world.edit(f"user: {world.database.config.user}", "user: reader")
    (world.folder / ".env").write_text(f"PG_PASSWORD={world.database.reader.password}\n")


def jvm_of(pid: int) -> psutil.Process:
    return next(p for p in psutil.Process(pid).children() if "java" in p.name())


def workers_of(pid: int) -> list[psutil.Process]:
    """Spark's Python workers: children of its daemon."""
    return [worker for daemon in jvm_of(pid).children() for worker in daemon.children()]


def kill_jvm(pid: int) -> None:
    jvm_of(pid).kill()


def kill_workers(pid: int) -> None:
    for worker in workers_of(pid):
        worker.kill()


def kill_daemon(pid: int) -> None:
    for daemon in jvm_of(pid).children():
        daemon.kill()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kill", "code", "said"),
    [(kill_jvm, 1, "Java"), (kill_workers, 0, "done"), (kill_daemon, 0, "done")],
    ids=["jvm", "workers", "daemon"],
)
def test_a_part_of_spark_dies(world: World, kill: Callable[[int], None], code: int, said: str) -> None:
    first_load(world)
    world.execute(CHANGE)
    world.execute(gate("item", 250))
    as_reader(world)
    world.on_spark()
    with shut(world.database):
        process = world.start("sync")
        wait_reading(world.database, process)
        kill(process.pid)
        if code:
            assert world.wait(process) == code, world.said
    assert world.wait(process) == code, world.said
    assert said in world.said
    assert "Traceback" not in world.said
    check_interrupted(world)
    assert world.sync().status == "done"
    check_converged(world)


def test_files_of_a_killed_attempt_are_removed(world: World) -> None:
    """Its task had read other tables before: their files are rewritten, and stand once."""
    world.execute(BEFORE)
    world.execute("CREATE TABLE last (id int PRIMARY KEY); INSERT INTO last VALUES (1), (2)")
    world.execute(gate("last", 2))
    as_reader(world)
    world.edit("local[2]", "local[1]")
    world.on_spark()
    with shut(world.database):
        process = world.start("sync")
        wait_reading(world.database, process)
        staged = list(world.folder.glob("lake/crash/*/data/*/*.parquet"))
        kill_workers(process.pid)
    assert world.wait(process) == 0, world.said
    assert staged
    check_converged(world)


def test_the_server_dies(own_server: Server, tmp_path: Path, session: Any, forked: Forks) -> None:
    world = World(make_database(own_server, "doomed"), tmp_path / "project", session, forked)
    world.write_project()
    first_load(world)
    world.execute(CHANGE)
    world.execute(gate("item", 250))
    as_reader(world)
    with shut(world.database):
        process = world.start("sync")
        wait_reading(world.database, process)
        own_server.kill()
        assert world.wait(process) in (1, 4, 6), world.said
    assert "Traceback" not in world.said
    own_server.start()
    check_interrupted(world)
    assert world.sync().status == "done"
    check_converged(world)
