"""What a server or a user lacks is said with the statement that brings it; and the commands that show the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from binlog_world import BinlogWorld, admin, grant

from mariadb import MariaDatabase

pytestmark = pytest.mark.server

TABLE = ("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")


@pytest.fixture
def alone(mariadb: MariaDatabase, tmp_path: Path) -> Iterator[BinlogWorld]:
    """Whose user may read tables and nothing else."""
    world = BinlogWorld.of(mariadb, tmp_path)
    world.run(*TABLE)
    yield world
    world.close()


@pytest.mark.slow
def test_a_user_who_may_not_read_the_log(alone: BinlogWorld) -> None:
    assert alone.database is not None
    user = alone.database.config.user
    error = alone.sync().tables[0].error
    assert f"GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO '{user}'@'%';" in error
    admin(alone, f"GRANT REPLICATION CLIENT ON *.* TO {user}")
    assert f"GRANT REPLICATION SLAVE ON *.* TO '{user}'@'%';" in alone.sync().tables[0].error
    admin(alone, f"GRANT REPLICATION SLAVE ON *.* TO {user}")
    assert alone.sync().status == "done"
    assert alone.differing() == {}


def test_rows_that_follow_a_foreign_key_are_seen_with_the_right_to_select_alone(mariadb: MariaDatabase, tmp_path: Path
) -> None:  # fmt: skip
    grant(mariadb, mariadb.reader.user)
    world = BinlogWorld.of(mariadb, tmp_path)
    world.restricted = True
    world.run(
        *TABLE, "CREATE TABLE gone (id int PRIMARY KEY, t int, FOREIGN KEY (t) REFERENCES t (id) ON DELETE CASCADE)",
        "CREATE TABLE kept (id int PRIMARY KEY, t int, FOREIGN KEY (t) REFERENCES t (id))",
        "INSERT INTO t VALUES (2, 2)", "INSERT INTO gone VALUES (1, 1), (2, 2)", "INSERT INTO kept VALUES (1, 2)",
    )  # fmt: skip
    world.sync()
    world.run("DELETE FROM t WHERE id = 1")
    report = world.sync()
    assert world.differing() == {}
    assert {t.table[1]: t.read for t in report.tables} == {"t": 0, "gone": 1, "kept": 0}
    world.close()


@pytest.mark.slow
def test_a_server_that_logs_statements(binlog_world: BinlogWorld) -> None:
    binlog_world.run(*TABLE)
    admin(binlog_world, "SET GLOBAL binlog_format = MIXED")
    try:
        error = binlog_world.sync().tables[0].error
    finally:
        admin(binlog_world, "SET GLOBAL binlog_format = ROW")
    assert "binlog_format is MIXED" in error
    assert "SET GLOBAL binlog_format = ROW;" in error
    assert binlog_world.sync().status == "done"


def test_commands(project: Callable[..., Callable[..., str]], mariadb: MariaDatabase) -> None:
    run = project("mysql", mariadb.config)
    for statement in TABLE:
        mariadb.execute(statement)
    assert "GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO" in run("source", "test", code=4)
    grant(mariadb)
    assert "binary log: not read yet; the server keeps" in run("source", "test")
    run("sync")
    mariadb.execute("UPDATE t SET v = 2")
    said = run("source", "log", "show")
    assert "binary log: was read up to binlog." in said
    assert " 0 bytes" not in said
    assert "a binary log has no slots" in run("source", "log", "drop", "--yes", code=1)
    run("sync")
    assert "0 bytes and 0 s behind" in run("status")
    mariadb.execute("CREATE TABLE other (id int PRIMARY KEY)")
    mariadb.execute("DROP TABLE t")
    run("sync")
    mariadb.execute("INSERT INTO other VALUES (1)")
    run("sync")
    assert "0 bytes and 0 s behind" in run("source", "log", "show"), "a table that is gone keeps nobody behind"
