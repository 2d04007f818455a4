"""Servers that are set up otherwise: an encrypted log, one that leaves databases out, replicas."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from binlog_world import BinlogWorld, admin

from mariadb import MariaDatabase, MariaServer, launch, open_as
from sync_world import counts

pytestmark = [pytest.mark.server, pytest.mark.slow]

TABLE = ("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 2)")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: names of sockets have a limit."""
    found = Path(tempfile.mkdtemp(prefix="instep-maria-log-"))
    yield found
    shutil.rmtree(found, ignore_errors=True)


def world_on(server: MariaServer, folder: Path, **more: Any) -> BinlogWorld:
    """Over a database `shop` of the server."""
    with open_as(server.admin) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS shop")
    config = replace(server.admin, database="shop", **more)
    return BinlogWorld.of(MariaDatabase(server.admin, config, config), folder)


def test_an_encrypted_log_and_one_that_leaves_databases_out(folder: Path, tmp_path: Path) -> None:
    """The server is killed in between; unlike the others of the tests it has its rows again then."""
    keys = folder / "keys"
    keys.write_text(f"1;{'0123456789abcdef' * 4}\n")
    server = launch(
        folder / "server", "--plugin-load-add=file_key_management", f"--file-key-management-filename={keys}",
        "--encrypt-binlog=ON", "--innodb-flush-log-at-trx-commit=2",
    )  # fmt: skip
    try:
        world = world_on(server, tmp_path)
        world.run(*TABLE)
        world.sync()
        world.run("UPDATE t SET v = 9 WHERE id = 2")
        assert counts(world.sync(), "t")[0] == 1
        assert world.differing() == {}
        server.kill()
        server.options = (*server.options, "--binlog-ignore-db=other")
        server.start()
        world.run("UPDATE t SET v = 10 WHERE id = 2")
        report = world.sync()
        assert "binlog_ignore_db is other" in " ".join(report.notes)
        assert (counts(report, "t")[0], world.differing()) == (2, {})
        world.close()
    finally:
        server.kill()


def test_the_log_of_a_replica(folder: Path, tmp_path: Path) -> None:
    """Rows are read from it, so its log is: what it does not have yet comes later."""
    primary = launch(folder / "primary", "--server-id=1")
    replica = launch(folder / "replica", "--server-id=2", "--log-slave-updates")
    try:
        world = world_on(primary, tmp_path, read_replica=(f"127.0.0.1:{replica.admin.port}",))
        begin = admin(world, "SELECT @@gtid_binlog_pos")[0][0]
        with open_as(replica.admin) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS shop")
            cursor.execute("SET GLOBAL gtid_slave_pos = %s", (begin,))
            cursor.execute(
                "CHANGE MASTER TO master_host = '127.0.0.1', master_port = %s, master_user = 'admin',"
                " master_password = %s, master_use_gtid = slave_pos", (primary.admin.port, primary.admin.password),
            )  # fmt: skip
            cursor.execute("START SLAVE")
        world.run(*TABLE)
        reached(world, replica)
        assert world.sync().status == "done"
        with open_as(replica.admin) as connection, connection.cursor() as cursor:
            cursor.execute("STOP SLAVE")
            world.run("UPDATE t SET v = 9 WHERE id = 2")
            assert counts(world.sync(), "t")[0] == 0
            cursor.execute("START SLAVE")
        reached(world, replica)
        assert counts(world.sync(), "t")[0] == 1
        assert world.rows("t", "v") == [(1,), (9,)]
        replica.kill()
        world.run("UPDATE t SET v = 10 WHERE id = 2")
        error = world.sync().tables[0].error
        assert "another server" in error
        assert "another replica" in error
        world.sync(full=True)
        assert world.rows("t", "v") == [(1,), (10,)]
        world.close()
    finally:
        primary.kill()
        replica.kill()


def reached(world: BinlogWorld, replica: MariaServer) -> None:
    """Once the replica has what its primary has."""
    wanted = admin(world, "SELECT @@gtid_binlog_pos")[0][0]
    with open_as(replica.admin) as connection, connection.cursor() as cursor:
        for _ in range(3000):
            cursor.execute("SELECT @@gtid_slave_pos")
            if cursor.fetchall()[0][0] == wanted:
                return
            time.sleep(0.1)
        cursor.execute("SHOW SLAVE STATUS")
        raise AssertionError(cursor.fetchall())
