"""A server that is put back to an earlier copy of its data, and rows that change without a word in its log."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from followed import TABLES, notes
from log_world import LogWorld

from instep.model import TableSettings
from postgres_server import Server, launch, make_database
from sync_world import counts

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="instep-back-"))
    folder.chmod(0o755)
    server = launch(folder / "server", int(os.environ.get("POSTGRES_MAJOR", "18")), "-c wal_level=logical")
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def putting_back(server: Server) -> Callable[[], Callable[[], None]]:
    """Copies the server's data now, and answers what puts it back to that."""
    data, copy = server.folder / "data", server.folder / "copy"

    def halted(act: Callable[[], None]) -> None:
        server.run("pg_ctl", "-w", "-D", data, "-m", "fast", "stop")
        act()
        server.start()

    def put_back() -> None:
        shutil.rmtree(data)
        copied(copy, data)

    def save() -> Callable[[], None]:
        shutil.rmtree(copy, ignore_errors=True)
        halted(lambda: copied(data, copy))
        return lambda: halted(put_back)

    return save


def copied(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


@pytest.fixture
def world(server: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LogWorld]:
    name = f"d{abs(hash(request.node.name))}"
    world = LogWorld.of(make_database(server, name), tmp_path).loaded()
    yield world
    own = "FROM pg_replication_slots WHERE database = current_database()"
    world.run(f"SELECT pg_drop_replication_slot(slot_name) {own}")
    world.close()


@pytest.mark.parametrize("busy", [False, True], ids=["the log is shorter", "the log is longer"])
def test_a_server_that_was_put_back_fails_its_tables(
    world: LogWorld, putting_back: Callable[[], Callable[[], None]], busy: bool
) -> None:
    put_back = putting_back()
    world.run("UPDATE t SET v = 0 WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (6, 6)")
    world.sync()
    put_back()
    if busy:
        world.run("CREATE TABLE other AS SELECT generate_series(1, 20000) AS n", "UPDATE t SET v = 9 WHERE id = 3")
    for _ in range(2):
        report = world.sync()
        assert {name: s for name, s in world.statuses(report).items() if name in "tu"} == {"t": "failed", "u": "failed"}
        why = next(t.error for t in report.tables if t.table[1] == "t")
        assert "was put back to an earlier copy" in why
        assert "instep sync --full" in why
    world.sync(full=True)
    assert world.differing() == {}
    world.run("UPDATE t SET v = 7 WHERE id = 3")
    assert counts(world.sync(), "t")[0] == 1
    assert world.differing() == {}


@pytest.mark.slow
def test_a_server_that_was_put_back_is_noticed_behind_more_than_one_read(
    world: LogWorld, putting_back: Callable[[], Callable[[], None]]
) -> None:
    put_back = putting_back()
    world.run("UPDATE t SET v = 0 WHERE id = 1")
    world.sync()
    put_back()
    world.log["messages"] = 10
    world.run(*(f"UPDATE t SET v = v + 1 WHERE id = {1 + i % 5}" for i in range(40)))  # noqa: S608
    world.run("CREATE TABLE other AS SELECT generate_series(1, 20000) AS n")
    report = world.sync()
    assert world.statuses(report) == {"t": "failed", "u": "failed", "other": "done"}
    assert "was put back to an earlier copy" in str(report)


def test_a_crash_is_not_taken_for_an_earlier_copy(world: LogWorld, server: Server) -> None:
    """The slot's own place may be an earlier one then."""
    for number in range(3):
        world.run(f"UPDATE t SET v = {number} WHERE id = 1")  # noqa: S608
        world.sync()
    server.kill()
    server.start()
    report = world.sync()
    assert set(world.statuses(report).values()) == {"done"}
    assert "as a whole" not in notes(report)
    world.run("UPDATE t SET v = 7 WHERE id = 3")
    world.sync()
    assert world.differing() == {}


def test_a_cursor_that_is_behind_reads_the_table_as_a_whole(
    server: Server, tmp_path: Path, putting_back: Callable[[], Callable[[], None]]
) -> None:
    world = LogWorld.of(make_database(server, "behind"), tmp_path)
    world.settings, world.follows = {"t": TableSettings(cursor="id"), "u": TableSettings()}, False
    world.run(*TABLES)
    world.sync()
    put_back = putting_back()
    world.run("INSERT INTO t VALUES (6, 6), (7, 7)")
    world.sync()
    put_back()
    world.run("INSERT INTO t VALUES (6, 600)")
    assert "went back from 7 to 6: the whole table is read" in notes(world.sync())
    assert world.differing() == {}
    world.close()


def test_rows_that_alter_table_writes_anew_are_read_again(world: LogWorld) -> None:
    world.run("ALTER TABLE t ALTER v TYPE int USING v * 10")
    report = world.sync()
    assert "public.t: read as a whole: ALTER TABLE has written its rows anew" in notes(report)
    assert (counts(report, "t")[0], counts(report, "u")[0]) == (5, 0)
    assert world.differing() == {}
    world.run("UPDATE t SET v = 7 WHERE id = 3")
    assert counts(world.sync(), "t")[0] == 1


def test_files_that_are_written_anew_with_the_same_values_are_not(world: LogWorld) -> None:
    world.run("CREATE TABLE w (id int PRIMARY KEY, v int)", "INSERT INTO w VALUES (1, 1)")
    world.sync()
    world.run("VACUUM FULL t", "CLUSTER u USING u_pkey", "UPDATE t SET v = 7 WHERE id = 3")
    world.run("ALTER TABLE w ALTER v SET DEFAULT 5", "ALTER TABLE w ALTER v SET STATISTICS 10")
    report = world.sync()
    assert [counts(report, name)[0] for name in ("t", "u", "w")] == [1, 0, 0]
    assert world.differing() == {}
    world.run("TRUNCATE t", "INSERT INTO t VALUES (9, 9)")
    world.sync()
    assert world.differing() == {}


def test_labels_of_an_enum_that_are_called_otherwise(world: LogWorld) -> None:
    world.run(
        "CREATE TYPE mood AS ENUM ('sad', 'glad')",
        "CREATE TABLE e (id int PRIMARY KEY, m mood, many mood[])",
        "INSERT INTO e VALUES (1, 'sad', '{sad,glad}')",
    )
    world.sync()
    world.run("ALTER TYPE mood ADD VALUE 'mad'")
    assert counts(world.sync(), "e")[0] == 0
    world.run("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
    assert counts(world.sync(), "e")[0] == 1
    assert world.differing() == {}
