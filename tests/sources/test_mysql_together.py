"""One table read by several connections: whatever is committed meanwhile, all of its rows are of one state."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pymysql
import pytest

from instep.errors import LockYielded, ReadError
from instep.project.sections.databases import MySqlSourceSection
from instep.sources.mysql import shared_view
from instep.sources.mysql import source as module
from instep.sources.mysql.binlog import stream
from instep.sources.mysql.read import EVERY
from instep.sources.mysql.shared_view import NotShared
from instep.sources.mysql.source import MySqlSource
from instep.stage.local import extract_locally
from instep.stage.spec import ChunkResult
from instep.stage.task import run_chunks, task_count
from mariadb import MariaDatabase, launch, open_as
from source_reads import EVERYTHING, accept, find, spec_of

ACCOUNTS, EACH = 4_000, 100
WAITING = "SELECT 1 FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata lock'"
SLEEPING = "SELECT id FROM information_schema.processlist WHERE info LIKE 'SELECT `id%SLEEP(300) = 0'"
POSITION, LOCK = "one position in the server's log", "writers of the table waited for"


@pytest.fixture
def bank(mariadb: MariaDatabase, monkeypatch: pytest.MonkeyPatch) -> MariaDatabase:
    monkeypatch.setattr(module, "CHUNK_ROWS", 500)
    mariadb.execute("CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL, w varchar(400)) ENGINE=InnoDB")
    mariadb.execute(f"INSERT INTO t SELECT seq, {EACH}, REPEAT('x', 300) FROM seq_1_to_{ACCOUNTS}")  # noqa: S608
    mariadb.execute("ANALYZE TABLE t")
    mariadb.execute(f"GRANT REPLICATION CLIENT ON *.* TO {mariadb.config.user}@'%'")
    return mariadb


@contextmanager
def transfers(config: MySqlSourceSection, pause: float) -> Iterator[list[int]]:
    """Move amounts between two accounts, and accounts to other numbers, until the end; yields how many were moved."""
    over, count = threading.Event(), [0]

    def work() -> None:
        chance = random.Random(7)
        with open_as(config) as connection, connection.cursor() as cursor:
            while not over.wait(pause):
                one, other = sorted(chance.sample(range(1, ACCOUNTS + 1), 2))
                with suppress(pymysql.OperationalError):  # a lock that was waited for in vain
                    connection.begin()
                    cursor.execute("UPDATE t SET v = v - 7 WHERE id = %s", (one,))
                    cursor.execute("UPDATE t SET v = v + 7 WHERE id = %s", (other,))
                    cursor.execute("UPDATE t SET id = id + 10000 WHERE id = %s", (one,))
                    cursor.execute("UPDATE t SET id = id - 10000 WHERE id > 10000 AND id <> %s", (one + 10000,))
                    connection.commit()
                    count[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield count
    finally:
        over.set()
        thread.join()


def loaded(source: MySqlSource, folder: Path) -> list[ChunkResult]:
    read = accept(find(source, "t"))
    with source.snapshot() as snapshot:
        chunks = snapshot.chunks(read, "t", EVERYTHING)
        spec = replace(spec_of(read, snapshot, folder.as_uri()), table="t")
        assert len(chunks) > 4
        return extract_locally(snapshot.reader, [spec], chunks, threads=2)


def bases(results: list[ChunkResult]) -> str:
    assert not [r.error for r in results if r.error]
    (basis,) = {r.basis for r in results}
    return basis


def is_one_state(results: list[ChunkResult]) -> bool:
    rows = pa.concat_tables(pq.read_table(file.path.removeprefix("file://")) for r in results for file in r.files)
    return len(rows) == len(pc.unique(rows["id"])) == ACCOUNTS and pc.sum(rows["v"]).as_py() == ACCOUNTS * EACH


WAYS = {"position": (0.2, 100, POSITION, True), "lock": (0.0, 0, LOCK, True), "one": (0.0, 0, "LOCK TABLES", False)}


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_all_chunks_are_of_one_state_while_others_write(
    bank: MariaDatabase, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pause, tries, basis, privileged = WAYS[way]
    monkeypatch.setattr(shared_view, "TRIES", tries)
    source = MySqlSource(bank.config if privileged else bank.reader)
    with transfers(bank.config, pause) as count:
        number = 0
        while number < 3 or not count[0]:
            results = loaded(source, tmp_path / str(number))
            assert basis in bases(results), bases(results)
            assert ("4 connections" in bases(results)) is privileged
            assert is_one_state(results)
            number += 1
    assert count[0] > 0


def test_a_lock_is_waited_for_a_second_and_then_one_connection_reads(
    bank: MariaDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared_view, "TRIES", 0)
    with open_as(bank.config) as writer, writer.cursor() as cursor:
        writer.begin()
        cursor.execute("UPDATE t SET v = v + 1 WHERE id = 1")
        results = loaded(MySqlSource(bank.config), tmp_path)
        assert "its writers could not be stopped within 1 s" in bases(results)
        assert "read by one connection" in bases(results)
    assert is_one_state(results), "what is not committed is not seen"
    bank.execute("UPDATE t SET v = v WHERE id = 1")


def test_a_prepared_transaction_may_be_committed_under_a_lock(
    bank: MariaDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared_view, "TRIES", 0)
    with open_as(bank.config) as writer, writer.cursor() as cursor:
        for statement in ("XA START 'a'", "UPDATE t SET v = 0 WHERE id = 1", "XA END 'a'", "XA PREPARE 'a'"):
            cursor.execute(statement)
    try:
        assert "prepared transactions" in bases(loaded(MySqlSource(bank.config), tmp_path))
    finally:
        bank.execute("XA ROLLBACK 'a'")


def test_the_server_ends_a_lock_whose_holder_is_silent(bank: MariaDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where this process has been stopped: others write again, and nothing rests on that lock."""
    monkeypatch.setattr(shared_view, "TRIES", 0)
    begin = shared_view._begin

    def slow(connections: Any) -> None:
        time.sleep(4)
        begin(connections)

    monkeypatch.setattr(shared_view, "_begin", slow)
    source = MySqlSource(bank.config)
    with source.snapshot() as snapshot:
        (chunk, *_) = snapshot.chunks(accept(find(source, "t")), "t", EVERYTHING)
        with snapshot.reader.open_shared(chunk, 4) as view:
            assert len(view.sessions) == 1
            assert "read by one connection" in view.basis
            bank.execute("UPDATE t SET v = v WHERE id = 1")


def test_where_the_server_has_no_more_connections_fewer_read_and_one_watches(bank: MariaDatabase) -> None:
    """One is left to others, and whoever waits for the table gets it."""
    source = MySqlSource(bank.config.model_copy(update={"table_connections": 6}))
    bank.execute(f"GRANT USAGE ON *.* TO {bank.config.user}@'%' WITH MAX_USER_CONNECTIONS 6")
    with source.snapshot() as snapshot:
        chunks = snapshot.chunks(accept(find(source, "t")), "t", EVERYTHING)
        with snapshot.reader.open_shared(chunks[0], 6) as view:
            assert "by 3 connections" in view.basis
            waits_for_no_reader(bank)
            open_as(bank.config).close()
            open_as(bank.config).close()
    bank.execute(f"GRANT USAGE ON *.* TO {bank.config.user}@'%' WITH MAX_USER_CONNECTIONS 3")
    with source.snapshot() as snapshot, snapshot.reader.open_shared(chunks[0], 6) as view:
        assert "read by one connection" in view.basis
        assert [b.num_rows for b in view.sessions[0].read(chunks[0])]
        waits_for_no_reader(bank)


def test_a_watch_that_gets_no_connection_gets_one_later(bank: MariaDatabase) -> None:
    source = MySqlSource(bank.config)
    with source.snapshot() as snapshot:
        chunks = snapshot.chunks(accept(find(source, "t")), "t", EVERYTHING)
        bank.execute(f"GRANT USAGE ON *.* TO {bank.config.user}@'%' WITH MAX_USER_CONNECTIONS 3")
        with open_as(bank.config), snapshot.reader.open() as session:
            assert [b.num_rows for b in session.read(chunks[0])]
            time.sleep(2 * EVERY + 0.2)
            bank.execute(f"GRANT USAGE ON *.* TO {bank.config.user}@'%' WITH MAX_USER_CONNECTIONS 4")
            waits_for_no_reader(bank)


def waits_for_no_reader(bank: MariaDatabase) -> None:
    altered = threading.Thread(target=bank.execute, args=("ALTER TABLE t ADD COLUMN IF NOT EXISTS more int, FORCE",))
    altered.start()
    altered.join(60)
    assert not altered.is_alive()


@pytest.mark.parametrize("tries", [100, 0])
def test_an_alteration_between_two_looks_at_the_table_goes_first(
    bank: MariaDatabase, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the first of the connections, and the second one behind it: none of them may wait for long."""
    monkeypatch.setattr(shared_view, "TRIES", tries)
    source = MySqlSource(bank.config)
    with source.snapshot() as snapshot:
        (chunk, *_) = snapshot.chunks(accept(find(source, "t")), "t", EVERYTHING)
        run, asked, threads = shared_view.run, list[str](), list[threading.Thread]()

        def altered(connection: Any, statement: str) -> Any:
            asked.extend([statement] if statement == chunk.probe else [])
            if len(asked) == 2 and not threads:
                threads.append(threading.Thread(target=waits_for_no_reader, args=(bank,)))
                threads[0].start()
                while not bank.execute(WAITING):
                    time.sleep(0.02)
            return run(connection, statement)

        monkeypatch.setattr(shared_view, "run", altered)
        with snapshot.reader.open_shared(chunk, 3) as view:
            assert "somebody alters the table" in view.basis or LOCK in view.basis
            threads[0].join(60)
            assert not threads[0].is_alive()


@pytest.mark.parametrize("option", ["--binlog-ignore-db=shop", "--binlog-do-db=other", "--skip-log-bin"])
def test_a_log_that_leaves_databases_out_proves_nothing(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction between two snapshots does not move the position: only the lock shows one state."""
    folder = Path(tempfile.mkdtemp(prefix="instep-maria-"))
    try:
        server = launch(folder / "server", option)
        try:
            shop = server.admin.model_copy(update={"database": "shop"})
            database = MariaDatabase(server.admin, shop, shop)
            with open_as(server.admin) as connection, connection.cursor() as cursor:
                cursor.execute("CREATE DATABASE shop")
            database.execute("CREATE TABLE t (id int PRIMARY KEY, v int) ENGINE=InnoDB")
            database.execute("INSERT INTO t VALUES (1, 1)")
            begin, source = shared_view._begin, MySqlSource(shop)

            def torn(connections: Any) -> None:
                begin(connections[:1])
                with suppress(pymysql.OperationalError), open_as(shop) as writer, writer.cursor() as cursor:
                    cursor.execute("SET lock_wait_timeout = 0")
                    cursor.execute("UPDATE t SET v = v + 1 WHERE id = 1")
                begin(connections[1:])

            monkeypatch.setattr(shared_view, "_begin", torn)
            with source.snapshot() as snapshot:
                (chunk,) = snapshot.chunks(accept(find(source, "t")), "t", EVERYTHING)
                with snapshot.reader.open_shared(chunk, 2) as view:
                    values = {b.column(1)[0].as_py() for s in view.sessions for b in s.read(chunk)}
            assert LOCK in view.basis
            assert values == {1}
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


DONE = "aaa19af0-eb6b-11f1-9faf-02fc00000001:1-5"
OWNED = [
    ("nothing in between", (DONE, "", "", DONE), True),
    ("one was committed", (DONE, "", "", f"{DONE}6"), False),
    ("one is on its way before", (DONE, "x:6#7", "", DONE), False),
    ("one is on its way behind", (DONE, "", "x:6#7", DONE), False),
]


@pytest.mark.parametrize(("answers", "expected"), [c[1:] for c in OWNED], ids=[c[0] for c in OWNED])
def test_mysql_shows_one_state_if_no_transaction_is_on_its_way(
    answers: tuple[str, ...], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is owned is asked for last before the snapshots, and first behind them."""
    left, asked = list(answers), list[str]()

    def first(connection: object, statement: str) -> tuple[str]:
        asked.append(statement.rpartition(".")[2])
        return (left.pop(0),)

    monkeypatch.setattr(shared_view, "first", first)
    monkeypatch.setattr(shared_view, "run", lambda *given: [("gtid_mode", "ON")])
    monkeypatch.setattr(shared_view, "is_mariadb", lambda connection: False)
    monkeypatch.setattr(shared_view, "_begin", lambda connections: asked.append("begin"))
    assert shared_view._transactions(cast(Any, [None])) is expected
    order = ["gtid_executed", "gtid_owned", "begin", "gtid_owned", "gtid_executed"]
    assert asked == order[: len(asked)]


def test_without_names_of_transactions_mysql_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_view, "is_mariadb", lambda connection: False)
    for found in ([], [("gtid_mode", "ON_PERMISSIVE")]):
        monkeypatch.setattr(shared_view, "run", lambda *given, found=found: found)
        with pytest.raises(NotShared, match="gtid_mode is not ON"):
            shared_view._transactions(cast(Any, [None]))


STATUS = [
    ("all", ("binlog.1", 4, "", "", ""), ""),
    ("one is left out", ("binlog.1", 4, "", "shop", ""), "binlog_ignore_db is shop"),
    ("others are left out", ("binlog.1", 4, "other", "", ""), "binlog_do_db is other"),
    ("denied", (1227, "Access denied"), "GRANT REPLICATION CLIENT"),
    ("no log", None, "writes no binary log"),
]


@pytest.mark.parametrize(("status", "why"), [c[1:] for c in STATUS], ids=[c[0] for c in STATUS])
def test_mysql_tells_what_its_log_leaves_out(
    status: tuple[Any, ...] | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MySQL 8.4 has another statement for it."""

    def first(connection: object, statement: str) -> tuple[Any, ...]:
        if "log_bin" in statement:
            return (int(status is not None),)
        if statement == "SHOW MASTER STATUS":
            raise pymysql.err.ProgrammingError(1064, "You have an error in your SQL syntax")
        assert status is not None
        if status[0] == 1227:
            raise pymysql.err.OperationalError(*status)
        return status

    monkeypatch.setattr(stream, "first", first)
    assert why in (found := stream.unlogged(cast(Any, None)))
    assert bool(found) is bool(why)


@pytest.mark.parametrize("names", [("log_slave_updates",), ("log_replica_updates",), ()])
@pytest.mark.parametrize("running", ["0", "1", None])
@pytest.mark.parametrize("logs", ["ON", "OFF"])
def test_a_replica_that_does_not_log_what_it_applies_proves_nothing(
    names: tuple[str, ...], running: str | None, logs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Percona Server has the new name alone, and does not tell of running replicas."""

    def run(connection: object, statement: str) -> list[tuple[str, str]]:
        if "GLOBAL VARIABLES" in statement:
            return [(name, logs) for name in names]
        if "GLOBAL STATUS" in statement:
            return [] if running is None else [("Slaves_running", running)]
        return [("Binlog_snapshot_file", "binlog.000001")]

    monkeypatch.setattr(shared_view, "run", run)
    if (names and logs == "ON") or running == "0":
        assert shared_view._tells_places(cast(Any, None))
    else:
        with pytest.raises(NotShared, match="does not log what it replicates"):
            shared_view._tells_places(cast(Any, None))


def test_a_connection_that_is_killed_fails_the_table(bank: MariaDatabase) -> None:
    """A new one would show another state."""
    source = MySqlSource(bank.config)
    with source.snapshot() as snapshot:
        chunks = snapshot.chunks(accept(find(source, "t")), "t", EVERYTHING)
        with snapshot.reader.open_shared(chunks[0], 3) as view:
            assert len(view.sessions) == 3
            bank.execute(f"KILL {view.sessions[1].connection.thread_id()}")  # type: ignore[attr-defined]
            assert [b.num_rows for b in view.sessions[0].read(chunks[0])]
            with pytest.raises(ReadError, match="the connection was lost"):
                list(view.sessions[1].read(chunks[1]))


def test_all_sessions_go_when_others_wait_for_the_table(bank: MariaDatabase) -> None:
    source = MySqlSource(bank.config)
    with source.snapshot() as snapshot:
        chunks = snapshot.chunks(accept(find(source, "t")), "t", EVERYTHING)
        with snapshot.reader.open_shared(chunks[0], 3) as view:
            for session, chunk in zip(view.sessions, chunks, strict=False):
                assert [b.num_rows for b in session.read(chunk)]
            altered = threading.Thread(target=bank.execute, args=("ALTER TABLE t ADD COLUMN more int",))
            altered.start()
            altered.join(30)
            assert not altered.is_alive(), "it waits for the last of them"
            for session, chunk in zip(view.sessions, chunks[3:], strict=False):
                with pytest.raises(LockYielded):
                    list(session.read(chunk))


@pytest.mark.parametrize(("most", "together", "tasks"), [(0, 4, 8), (2, 1, 1), (3, 1, 1), (5, 3, 1), (11, 4, 2)])
def test_all_connections_together_stay_within_the_bound(
    bank: MariaDatabase, most: int, together: int, tasks: int
) -> None:
    source = MySqlSource(bank.config.model_copy(update={"max_connections": most}))
    with source.snapshot() as snapshot:
        chunks = snapshot.chunks(accept(find(source, "t")), "t", EVERYTHING)
        assert {c.connections for c in chunks} == {together}
        assert task_count(snapshot.reader.limits, 8, 8) == tasks
        assert not most or 1 + tasks * (together + (most > 2)) <= most


def test_without_a_bound_many_tables_do_not_exhaust_the_server(bank: MariaDatabase) -> None:
    """The first of them are read by several connections, each watched by another one."""
    source = MySqlSource(bank.config)
    with source.snapshot() as snapshot:
        read = accept(find(source, "t"))
        counts = [snapshot.chunks(read, f"t{n}", EVERYTHING)[0].connections for n in range(50)]
    assert counts == [4, 4, *([1] * 48)]


def test_an_interrupted_read_does_not_wait_for_the_server(bank: MariaDatabase, tmp_path: Path) -> None:
    """Whatever the server is at for the other sessions."""
    source = MySqlSource(bank.config)
    read = accept(find(source, "t"))
    with source.snapshot() as snapshot:
        chunks = snapshot.chunks(read, "t", EVERYTHING)
        spec = replace(spec_of(read, snapshot, tmp_path.as_uri()), table="t")
        slow = [chunks[0], *(replace(c, query=f"{c.query} AND SLEEP(300) = 0") for c in chunks[1:])]
        results = run_chunks(snapshot.reader, {"t": spec}, slow, 0)
        assert next(results).error == ""
        while len(asleep := bank.execute(SLEEPING)) < 3:
            time.sleep(0.02)
        results.close()  # type: ignore[attr-defined]
        assert "lane" not in {thread.name for thread in threading.enumerate()}
        assert set(asleep) <= set(bank.execute(SLEEPING)), "the server has not noticed"
        for (session,) in asleep:
            bank.execute(f"KILL {session}")


@pytest.mark.parametrize("table", ["t (id int PRIMARY KEY) ENGINE=MyISAM", "t (id int) ENGINE=InnoDB"])
def test_what_has_no_snapshot_or_no_key_is_read_by_one(
    mariadb: MariaDatabase, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", 500)
    mariadb.execute(f"CREATE TABLE {table}")
    mariadb.execute("INSERT INTO t SELECT seq FROM seq_1_to_4000")
    source = MySqlSource(mariadb.config)
    with source.snapshot() as snapshot:
        assert {c.connections for c in snapshot.chunks(accept(find(source, "t")), "t", EVERYTHING)} == {1}
