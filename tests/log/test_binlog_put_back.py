"""A MariaDB that is put back to an earlier copy of its data: no table is read on from a place of another history."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog_world import BinlogWorld, admin

from instep.sources.mysql.binlog.log import MySqlLog, Position
from mariadb import MariaServer, launch, open_as
from sync_world import counts

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(scope="module")
def mariadb_server() -> Iterator[MariaServer]:
    folder = Path(tempfile.mkdtemp(prefix="instep-maria-back-"))
    server = launch(folder / "server")
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def halt(server: MariaServer) -> None:
    with open_as(server.admin) as connection, connection.cursor() as cursor:
        cursor.execute("SHUTDOWN")
    assert server.process is not None
    server.process.wait(600)


def copied(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


@pytest.mark.parametrize("busy", [False, True], ids=["the log is shorter", "the log is longer"])
def test_a_server_that_was_put_back_fails_its_tables(
    binlog_world: BinlogWorld, mariadb_server: MariaServer, busy: bool
) -> None:
    world, server, data = binlog_world.loaded(), mariadb_server, mariadb_server.folder / "data"
    halt(server)
    copied(data, server.folder / "copy")
    server.start()
    world.run("UPDATE t SET v = 0 WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (6, 6)")
    world.sync()
    halt(server)
    copied(server.folder / "copy", data)
    server.start()
    if busy:
        world.run(
            "CREATE TABLE other (n int) AS SELECT seq AS n FROM seq_1_to_20000", "UPDATE t SET v = 9 WHERE id = 3"
        )
    for _ in range(2):
        report = world.sync()
        why = {t.table[1]: t.error for t in report.tables if t.table[1] in "tu"}
        assert all("binary log was reset" in w or "has gone back" in w for w in why.values()), why
        assert "instep sync --full" in why["t"]
    world.sync(full=True)
    assert world.differing() == {}
    world.run("UPDATE t SET v = 7 WHERE id = 3")
    assert counts(world.sync(), "t")[0] == 1
    assert world.differing() == {}


def test_a_place_where_no_event_begins_is_of_another_history(binlog_world: BinlogWorld) -> None:
    """The file's birth alone does not show it: a server that was put back within the same second has the same."""
    world = binlog_world.loaded()
    log = MySqlLog(world.database.config)
    log.state()
    file, begin = log._server.end
    world.run("UPDATE t SET v = 8 WHERE id = 3")
    log.state()
    end = log._server.end[1]
    birth = log._birth((file, begin))
    assert {at: log.position_error(str(Position(file, at, birth))) for at in (begin, end)} == {begin: "", end: ""}
    for at in (begin + 1, begin + 4, begin + 19, end - 1):
        assert "has gone back: no event begins at" in log.position_error(str(Position(file, at, birth))), at


@pytest.mark.parametrize("how", ["the log is rotated", "the server is killed"])
def test_the_end_and_the_begin_of_a_file_are_of_the_same_history(
    binlog_world: BinlogWorld, mariadb_server: MariaServer, how: str
) -> None:
    world, server = binlog_world.loaded(), mariadb_server
    log = MySqlLog(world.database.config)
    log.state()
    file, end = log._server.end
    place = Position(file, end, log._birth((file, end)))
    if how == "the log is rotated":
        admin(world, "FLUSH BINARY LOGS")
    else:
        server.kill()
        server.start()
    log.state()
    after = log._server.end[0]
    assert after != file
    begin = Position(after, 4, log._birth((after, 4)))
    assert [log.position_error(str(one)) for one in (place, begin)] == ["", ""]
    world.run("UPDATE t SET v = 8 WHERE id = 3")
    log.state()
    assert [log.position_error(str(one)) for one in (place, begin)] == ["", ""]
