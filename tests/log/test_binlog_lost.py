"""What the binary log has lost, or never had, is read again or said: nothing is missed in silence."""

from __future__ import annotations

import time

import pytest
from binlog_world import BinlogWorld, admin
from followed import TABLES, notes

from sync_world import counts

pytestmark = pytest.mark.server


@pytest.fixture
def loaded(binlog_world: BinlogWorld) -> BinlogWorld:
    return binlog_world.loaded()


def purge(world: BinlogWorld) -> None:
    """All of the log up to now; the server lets a file go once the engine is done with it."""
    before = admin(world, "SHOW MASTER STATUS")[0][0]
    for _ in range(3000):
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
def test_a_column_of_another_type(loaded: BinlogWorld) -> None:
    """Nothing is said of a publication, which these servers do not have."""
    loaded.run("ALTER TABLE t MODIFY v bigint", "UPDATE t SET v = 0 WHERE id = 1")
    assert "t: read as a whole: its key or a column's type is another one" in notes(loaded.sync())
    assert loaded.differing() == {}


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
    world.run(*TABLES)
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
