"""Servers that are set up otherwise: an encrypted log, one that leaves databases out, replicas."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from binlog_world import BinlogWorld, admin

from instep.crash import Crashed
from instep.sources.log import LogRead
from instep.sources.mysql.binlog.log import MySqlLog
from instep.sync.loading.cdc import CdcSession
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
    config = server.admin.model_copy(update={"database": "shop", **more})
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


@pytest.fixture
def servers(folder: Path) -> Iterator[tuple[MariaServer, MariaServer]]:
    """A primary and its replica, with a database `shop`."""
    primary = launch(folder / "primary", "--server-id=1", "--gtid-strict-mode=ON")
    replica = launch(folder / "replica", "--server-id=2", "--gtid-strict-mode=ON", "--log-slave-updates")
    try:
        with open_as(primary.admin) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT @@gtid_binlog_pos")
            ((begin,),) = cursor.fetchall()
            cursor.execute("CREATE DATABASE shop")
        execute(replica, "SET GLOBAL gtid_slave_pos = %s", (begin,))
        replicate(replica, primary)
        yield primary, replica
    finally:
        primary.kill()
        replica.kill()


def execute(server: MariaServer, statement: str, given: tuple[Any, ...] = ()) -> None:
    with open_as(server.admin) as connection, connection.cursor() as cursor:
        cursor.execute(statement, given)


def replicate(replica: MariaServer, primary: MariaServer) -> None:
    execute(
        replica, "CHANGE MASTER TO master_host = '127.0.0.1', master_port = %s, master_user = 'admin',"
        " master_password = %s, master_use_gtid = slave_pos", (primary.admin.port, primary.admin.password),
    )  # fmt: skip
    execute(replica, "START SLAVE")


def test_the_log_of_a_replica(servers: tuple[MariaServer, MariaServer], tmp_path: Path) -> None:
    """Rows are read from it, so its log is: what it does not have yet comes later."""
    primary, replica = servers
    world = world_on(primary, tmp_path, read_replica=(f"127.0.0.1:{replica.admin.port}",))
    world.run(*TABLE)
    reached(world, replica)
    assert world.sync().status == "done"
    execute(replica, "STOP SLAVE")
    world.run("UPDATE t SET v = 9 WHERE id = 2")
    assert counts(world.sync(), "t")[0] == 0
    execute(replica, "START SLAVE")
    reached(world, replica)
    assert counts(world.sync(), "t")[0] == 1
    assert world.rows("t", "v") == [(1,), (9,)]
    replica.kill()
    world.run("UPDATE t SET v = 10 WHERE id = 2")
    assert counts(world.sync(), "t")[0] == 1, "its place in the log of the primary is found by GTID"
    assert world.rows("t", "v") == [(1,), (10,)]
    world.close()


def failing_over(primary: MariaServer, replica: MariaServer, folder: Path) -> BinlogWorld:
    """Rows are read from the primary as long as it answers, then from its replica."""
    config = replica.admin.model_copy(update={"database": "shop", "read_replica": (f"127.0.0.1:{primary.admin.port}",)})
    return BinlogWorld.of(MariaDatabase(primary.admin, config, config), folder)


def test_a_failover_reads_what_is_behind_by_gtid(servers: tuple[MariaServer, MariaServer], tmp_path: Path) -> None:
    """The new primary's log has other files and places. Tables in which nothing changed know their place, too."""
    primary, replica = servers
    world = failing_over(primary, replica, tmp_path)
    world.run(*TABLE, "CREATE TABLE u (id int PRIMARY KEY, v int)", "INSERT INTO u SELECT * FROM t")
    assert world.sync().status == "done"
    world.run("INSERT INTO t VALUES (3, 3)")
    assert counts(world.sync(), "t")[0] == 1
    reached(world, replica)
    execute(replica, "FLUSH BINARY LOGS")
    world.run("UPDATE t SET v = 8 WHERE id = 1")
    reached(world, replica)
    primary.kill()
    execute(replica, "STOP SLAVE")
    execute(replica, "UPDATE shop.t SET v = 9 WHERE id = 2")
    report = world.sync()
    assert (counts(report, "t")[0], counts(report, "u")[0]) == (2, 0), report
    for number in range(2):
        execute(replica, f"UPDATE shop.u SET v = v + 1 WHERE id > {number}")  # noqa: S608
        report = world.sync()
        assert (report.status, counts(report, "t")[0], counts(report, "u")[0]) == ("done", 0, 2 - number)
    assert (world.rows("t", "v"), world.rows("u", "v")) == ([(3,), (8,), (9,)], [(2,), (4,)])
    world.close()


@pytest.mark.parametrize("lost", ["in the log", "in rows", "not known"])
def test_a_new_primary_that_lacks_transactions_is_refused(
    servers: tuple[MariaServer, MariaServer], tmp_path: Path, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The destination has rows of them: also of such that came behind the place that the log was read to. A replica
    that is not strict may have own ones in their place."""
    primary, replica = servers
    world = failing_over(primary, replica, tmp_path)
    world.run(*TABLE)
    assert world.sync().status == "done"
    world.run("UPDATE t SET v = 3 WHERE id = 1")
    reached(world, replica)
    execute(replica, "STOP SLAVE")
    if lost == "not known":
        execute(replica, "SET GLOBAL gtid_strict_mode = OFF")
    if lost != "in rows":
        world.run("UPDATE t SET v = 7 WHERE id = 1")
    else:
        read = MySqlLog.read

        def late(log: MySqlLog, *given: Any) -> LogRead:
            found = read(log, *given)
            world.run("UPDATE t SET v = 7 WHERE id = 1")
            return found

        monkeypatch.setattr(MySqlLog, "read", late)
    assert world.sync().status == "done"
    monkeypatch.undo()
    assert world.rows("t", "v") == [(2,), (7,)]
    if lost == "not known":
        execute(replica, "START SLAVE")
        reached(world, replica)
        execute(replica, "STOP SLAVE")
    primary.kill()
    execute(replica, "UPDATE shop.t SET v = 9 WHERE id = 2")
    assert "another server" in (world.sync().tables[0].error or "")
    world.sync(full=True)
    assert world.rows("t", "v") == ([(7,), (9,)] if lost == "not known" else [(3,), (9,)])
    world.close()


@pytest.mark.parametrize("ends", ["in the first pass", "behind the first pass", "between settle and cover"])
def test_a_run_that_dies_is_no_proof_that_a_new_primary_has_all(
    servers: tuple[MariaServer, MariaServer], tmp_path: Path, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the rows of the run may show is known once its last row is committed, and a later pass reads later rows."""
    primary, replica = servers
    world = failing_over(primary, replica, tmp_path)
    world.run(*TABLE)
    assert world.sync().status == "done"
    reached(world, replica)
    execute(replica, "STOP SLAVE")
    if ends != "in the first pass":
        world.log["messages"] = 1
    advance, passes = CdcSession.advance_positions, [0]
    if ends == "in the first pass":
        execute(replica, "START SLAVE")
    world.run("UPDATE t SET v = 3 WHERE id = 1", "UPDATE t SET v = 4 WHERE id = 2")
    if ends != "behind the first pass":
        passes[0] = 1

    def dying(follow: CdcSession, done: Any) -> Any:
        passes[0] += 1
        if passes[0] == 2 and ends != "between settle and cover":
            raise Crashed
        found = advance(follow, done)
        if passes[0] == 1:
            reached_gtid = admin(world, "SELECT @@gtid_binlog_pos")[0][0]
            execute(replica, "START SLAVE")
            waits(replica, reached_gtid)
            execute(replica, "STOP SLAVE")
            world.run("UPDATE t SET v = 7 WHERE id = 1")
        return found

    def died(follow: CdcSession) -> None:
        raise Crashed

    monkeypatch.setattr(CdcSession, "advance_positions", dying)
    monkeypatch.setattr(CdcSession, "cover", died)
    with pytest.raises(Crashed):
        world.sync()
    monkeypatch.undo()
    world.log.clear()
    if ends == "in the first pass":
        reached(world, replica)
    primary.kill()
    assert "another server" in (world.sync().tables[0].error or ""), world.rows("t", "v")
    world.sync(full=True)
    with open_as(replica.admin) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT v FROM shop.t ORDER BY v")
        assert world.rows("t", "v") == list(cursor.fetchall())
    world.close()


@pytest.mark.parametrize("gtids", ["0-1-999999", "no names", "aaa19af0-eb6b-11f1-9faf-02fc00000001:1-5", "0-1-1,0-1-2"])
def test_places_that_no_server_knows_are_not_found(
    servers: tuple[MariaServer, MariaServer], tmp_path: Path, gtids: str
) -> None:
    """Of a server of another kind, too: refused until a person has the tables read again, which asks for no place."""
    primary, replica = servers
    world = failing_over(primary, replica, tmp_path)
    world.run(*TABLE)
    assert world.sync().status == "done"
    reached(world, replica)
    execute(replica, "STOP SLAVE")
    primary.kill()
    log = MySqlLog(replica.admin.model_copy(update={"database": "shop"}))
    log.state()
    assert log.place_of(f"binlog.000001:4@1#{gtids}", gtids) == ""
    assert log.place_of("0/16B3748", gtids) == ""
    cursors = world.context.store.cursors
    (ref, record), *_ = cursors.of(world.context.name).items()
    own = json.loads(record.cursor)["log"]
    lost = json.dumps({"log": {**own, "at": f"{own['at'].partition('#')[0]}#{gtids}", "covered": gtids}})
    with world.context.transaction():
        cursors.save(world.context.name, {ref: lost}, run=record.run, fence=record.fence)
    assert "another server" in (world.sync().tables[0].error or "")
    assert world.sync(full=True).status == "done"
    assert world.sync().status == "done"
    world.close()


def reached(world: BinlogWorld, replica: MariaServer) -> None:
    """Once the replica has what its primary has."""
    waits(replica, admin(world, "SELECT @@gtid_binlog_pos")[0][0])


def waits(replica: MariaServer, wanted: str) -> None:
    with open_as(replica.admin) as connection, connection.cursor() as cursor:
        for _ in range(3000):
            cursor.execute("SELECT @@gtid_slave_pos")
            if cursor.fetchall()[0][0] == wanted:
                return
            time.sleep(0.1)
        cursor.execute("SHOW SLAVE STATUS")
        raise AssertionError(cursor.fetchall())
