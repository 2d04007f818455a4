"""What the binary log has lost, or never had, is read again or said: nothing is missed in silence."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from binlog_world import BinlogWorld, admin

from instep import crash
from instep.crash import Crashed
from instep.model import TableSettings
from mariadb import open_as
from sync_world import counts

pytestmark = pytest.mark.server

SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, v int)",
    "INSERT INTO t SELECT seq, seq FROM seq_1_to_5",
    "CREATE TABLE u (id int PRIMARY KEY, v int)",
    "INSERT INTO u SELECT seq, seq FROM seq_1_to_5",
)


@pytest.fixture
def loaded(binlog_world: BinlogWorld) -> BinlogWorld:
    binlog_world.run(*SETUP)
    binlog_world.sync()
    return binlog_world


def notes(report: Any) -> str:
    return " ".join(report.notes)


def purge(world: BinlogWorld) -> None:
    """All of the log up to now; the server lets a file go once the engine is done with it."""
    before = admin(world, "SHOW MASTER STATUS")[0][0]
    for _ in range(50):
        admin(world, "FLUSH BINARY LOGS")
        admin(world, f"PURGE BINARY LOGS TO '{admin(world, 'SHOW MASTER STATUS')[0][0]}'")
        if before not in {row[0] for row in admin(world, "SHOW BINARY LOGS")}:
            return
        time.sleep(0.1)
    raise AssertionError("nothing was purged")


def test_a_log_that_was_purged_fails_its_tables_until_somebody_says_so(loaded: BinlogWorld) -> None:
    loaded.run("UPDATE t SET v = 0 WHERE id = 1")
    purge(loaded)
    loaded.run("UPDATE t SET v = 0 WHERE id = 2")
    report = loaded.sync()
    assert loaded.statuses(report) == {"t": "failed", "u": "failed"}
    said = next(t.error for t in report.tables if t.table[1] == "t")
    assert "purged its binary log up to binlog." in said
    assert "binlog_expire_logs_seconds is" in said
    assert f"instep sync --full --table {loaded.case.schema}.t" in said
    assert loaded.rows("t", "v")[0] == (1,)
    loaded.sync(full=True, tables=frozenset({f"{loaded.case.schema}.t"}))
    assert loaded.statuses(loaded.sync()) == {"t": "done", "u": "failed"}
    loaded.sync(full=True)
    assert loaded.differing() == {}
    loaded.run("UPDATE t SET v = 7 WHERE id = 3")
    assert counts(loaded.sync(), "t")[0] == 1


@pytest.mark.slow
def test_a_log_that_was_started_anew(loaded: BinlogWorld) -> None:
    """Its files have the same names."""
    loaded.run("UPDATE t SET v = 0 WHERE id = 1")
    admin(loaded, "DO SLEEP(1.1)")
    admin(loaded, "RESET MASTER")
    loaded.run(*(f"UPDATE t SET v = {n} WHERE id = 2" for n in range(3)))  # noqa: S608
    report = loaded.sync()
    assert set(loaded.statuses(report).values()) == {"failed"}
    assert "binary log" in report.tables[0].error
    loaded.sync(full=True)
    assert loaded.differing() == {}
    assert counts(loaded.sync(), "t")[0] == 0


@pytest.mark.slow
def test_another_server(loaded: BinlogWorld) -> None:
    held = loaded.destination.held[("shop", "t")]  # type: ignore[attr-defined]
    cursor = json.loads(held.state.cursor)
    cursor["log"]["server"] = "another"
    moved = replace(held, state=replace(held.state, cursor=json.dumps(cursor)))
    loaded.destination.held[("shop", "t")] = moved  # type: ignore[attr-defined]
    loaded.run("UPDATE t SET v = 0 WHERE id = 1")
    report = loaded.sync()
    assert loaded.statuses(report) == {"t": "failed", "u": "done"}
    assert "another server" in next(r.error for r in report.tables if r.table[1] == "t")


@pytest.mark.slow
def test_files_of_the_log_are_read_on(loaded: BinlogWorld) -> None:
    for number in range(3):
        loaded.run(f"UPDATE t SET v = 9 WHERE id = {number + 1}")  # noqa: S608
        admin(loaded, "FLUSH BINARY LOGS")
    assert counts(loaded.sync(), "t")[0] == 3
    assert loaded.differing() == {}
    assert counts(loaded.sync(), "t")[0] == 0


@pytest.mark.slow
def test_a_table_that_does_not_run_goes_on_by_its_log(loaded: BinlogWorld) -> None:
    ref = (loaded.case.schema, "t")
    loaded.store.pauses.pause("shop", "a break", table=ref)
    loaded.run("UPDATE t SET v = 0 WHERE id = 1", "TRUNCATE u")
    loaded.sync()
    loaded.store.pauses.resume("shop", table=ref, who="test")
    report = loaded.sync()
    assert counts(report, "t")[0] == 1
    assert (counts(report, "u")[0], notes(report)) == (0, "")
    assert loaded.differing() == {}


@pytest.mark.slow
def test_only_some_tables_are_synced(loaded: BinlogWorld) -> None:
    loaded.run("UPDATE t SET v = 0 WHERE id = 1", "UPDATE u SET v = 0 WHERE id = 1")
    loaded.sync(tables=frozenset({f"{loaded.case.schema}.t"}))
    report = loaded.sync()
    assert counts(report, "u")[0] == 1
    assert report.notes == ()
    assert loaded.differing() == {}


@pytest.mark.slow
def test_a_transaction_that_ends_during_the_sync_comes_later(loaded: BinlogWorld) -> None:
    assert loaded.database is not None
    with open_as(loaded.database.config) as late, late.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("UPDATE t SET v = 100 WHERE id = 1")
        loaded.run("UPDATE t SET v = 200 WHERE id = 2")
        assert counts(loaded.sync(), "t")[0] == 1
        late.commit()
    loaded.run("UPDATE t SET v = 300 WHERE id = 3")
    assert counts(loaded.sync(), "t")[0] == 2
    assert loaded.differing() == {}


@pytest.mark.slow
def test_a_prepared_transaction_is_waited_for(loaded: BinlogWorld) -> None:
    """Its rows are in the log before anybody sees them."""
    loaded.together("XA START 'x', 'y', 7", "UPDATE t SET v = 100 WHERE id = 1", "XA END 'x', 'y', 7",
                    "XA PREPARE 'x', 'y', 7")  # fmt: skip
    loaded.run("UPDATE t SET v = 200 WHERE id = 2")
    loaded.sync()
    loaded.sync()
    assert loaded.rows("t", "v")[:2] == [(1,), (200,)]
    loaded.run("XA COMMIT 'x', 'y', 7")
    loaded.sync()
    assert loaded.differing() == {}
    assert counts(loaded.sync(), "t")[0] == 0


@pytest.mark.slow
def test_a_transaction_that_was_prepared_before_the_first_sync(binlog_world: BinlogWorld) -> None:
    """Its rows are in the log before the place from which that is read."""
    world = binlog_world
    world.run(*SETUP)
    world.together("XA START 'y'", "UPDATE t SET v = 100 WHERE id = 1", "XA END 'y'", "XA PREPARE 'y'")
    world.sync()
    world.run("XA COMMIT 'y'", "UPDATE u SET v = 5 WHERE id = 1")
    assert "had been prepared before" in notes(world.sync())
    assert world.differing() == {}
    world.together("XA START 'z'", "UPDATE t SET v = 101 WHERE id = 1", "XA END 'z'", "XA COMMIT 'z' ONE PHASE")
    report = world.sync()
    assert (counts(report, "t")[0], notes(report)) == (1, "")
    assert world.differing() == {}


@pytest.mark.slow
def test_more_than_one_read_of_the_log(loaded: BinlogWorld) -> None:
    loaded.log["messages"] = 10
    loaded.run(*(f"UPDATE t SET v = v + 1 WHERE id = {1 + i % 5}" for i in range(20)))  # noqa: S608
    report = loaded.sync()
    assert set(loaded.statuses(report).values()) == {"done"}
    assert loaded.differing() == {}
    assert counts(loaded.sync(), "t")[0] == 0


@pytest.mark.slow
def test_more_rows_than_are_looked_for_by_key(loaded: BinlogWorld) -> None:
    loaded.log["limit"] = 2
    loaded.run("UPDATE t SET v = 0 WHERE id < 4", "DELETE FROM t WHERE id = 4")
    report = loaded.sync()
    assert "more than 2 of its rows changed" in notes(report)
    assert counts(report, "t")[:4] == (4, 0, 3, 1)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["log.saved", "log.released", "sync.staged", "sync.noted"])
def test_killed_in_between(loaded: BinlogWorld, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded.run("UPDATE t SET v = 0 WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (9, 9)")
    monkeypatch.setenv(crash.VARIABLE, f"{point}=raise")
    with pytest.raises(Crashed):
        loaded.sync()
    monkeypatch.delenv(crash.VARIABLE)
    report = loaded.sync()
    assert loaded.differing() == {}, report
    assert "as a whole" not in notes(report)
    loaded.run("UPDATE t SET v = 5 WHERE id = 3")
    assert counts(loaded.sync(), "t")[0] == 1


@pytest.mark.slow
def test_a_store_that_was_put_back_costs_a_whole_read_and_no_row(loaded: BinlogWorld) -> None:
    loaded.sync()
    with loaded.store.transaction():
        for table in ("t", "u"):
            loaded.store.cursors.forget("shop", (loaded.case.schema, table))
    loaded.run("UPDATE t SET v = 0 WHERE id = 1")
    assert "the log was read from" in notes(loaded.sync())
    assert loaded.differing() == {}
    loaded.run("UPDATE t SET v = 1 WHERE id = 1")
    assert counts(loaded.sync(), "t")[0] == 1


@pytest.mark.slow
def test_from_another_mode_and_back(loaded: BinlogWorld) -> None:
    loaded.settings = {"t": TableSettings(), "u": TableSettings()}
    loaded.run("UPDATE t SET v = 0 WHERE id = 1")
    loaded.follows = False
    assert notes(loaded.sync()) == ""
    loaded.settings, loaded.follows = {}, True
    loaded.run("UPDATE t SET v = 1 WHERE id = 1")
    assert counts(loaded.sync(), "t")[0] == 5
    loaded.run("UPDATE t SET v = 2 WHERE id = 1")
    assert counts(loaded.sync(), "t")[0] == 1
    assert loaded.differing() == {}


@pytest.mark.slow
def test_a_table_that_fails_does_not_hold_the_others_back(loaded: BinlogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded.log["messages"] = 10
    merge = loaded.destination.merge

    def failing(spark: Any, ref: Any, *rest: Any) -> Any:
        if ref == ("shop", "t"):
            raise RuntimeError("the disk is full")
        return merge(spark, ref, *rest)

    loaded.run(*(f"UPDATE {table} SET v = v + 1 WHERE id = 1" for table in "tu" * 15))  # noqa: S608
    with monkeypatch.context() as patch:
        patch.setattr(loaded.destination, "merge", failing)
        report = loaded.sync()
    assert loaded.statuses(report) == {"t": "failed", "u": "done"}
    assert set(loaded.differing()) == {"t"}
    assert counts(loaded.sync(), "t")[0] == 1
    assert loaded.differing() == {}


@pytest.mark.slow
def test_compressed_events(loaded: BinlogWorld) -> None:
    """Rows and statements that are compressed, and events without a checksum."""
    admin(loaded, "SET GLOBAL log_bin_compress = ON")
    admin(loaded, "SET GLOBAL log_bin_compress_min_len = 10")
    admin(loaded, "SET GLOBAL binlog_checksum = NONE")
    try:
        loaded.run("UPDATE t SET v = id + 1000 WHERE id < 4", "DELETE FROM t WHERE id = 5", "TRUNCATE TABLE u",
                   "INSERT INTO u SELECT seq, seq FROM seq_1_to_200")  # fmt: skip
    finally:
        admin(loaded, "SET GLOBAL log_bin_compress = OFF")
        admin(loaded, "SET GLOBAL binlog_checksum = CRC32")
    report = loaded.sync()
    assert "u: read as a whole: it was truncated" in notes(report)
    assert counts(report, "t")[0] == 3
    assert loaded.differing() == {}


@pytest.mark.slow
def test_columns_that_the_log_names(loaded: BinlogWorld) -> None:
    admin(loaded, "SET GLOBAL binlog_row_metadata = FULL")
    try:
        loaded.run("UPDATE t SET v = 7 WHERE id = 1", "ALTER TABLE t ADD COLUMN x int FIRST, DROP COLUMN v",
                   "UPDATE t SET x = 5 WHERE id = 2", "DELETE FROM t WHERE id = 3")  # fmt: skip
    finally:
        admin(loaded, "SET GLOBAL binlog_row_metadata = NO_LOG")
    assert counts(loaded.sync(), "t")[0] == 2
    assert loaded.differing() == {}
