"""What becomes of each kind of change of a MariaDB table that follows the binary log."""

from __future__ import annotations

import pytest
from binlog_world import BinlogWorld
from followed import FollowCase, check_cases, notes, same_cases

from instep.sources import keyset
from instep.sources.mysql.binlog import log
from sync_world import counts

pytestmark = pytest.mark.server

BASE = (
    "CREATE TABLE doc (id int PRIMARY KEY, body longtext, n int)",
    "INSERT INTO doc VALUES (1, repeat('a', 999), 0), (2, repeat('b', 999), 0), (3, '', 0), (4, NULL, 0), (5, 'e', 0)",
)
PARTED = (
    "CREATE TABLE doc (id int PRIMARY KEY, v text) PARTITION BY RANGE (id) "
    "(PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (20))",
    "INSERT INTO doc VALUES (1, 'a'), (11, 'b')",
)
CASES: list[FollowCase] = [
    *same_cases(BASE),
    ("rows come, change and go", BASE, ("UPDATE doc SET n = 1 WHERE id = 2", "DELETE FROM doc WHERE id = 1",
     "INSERT INTO doc VALUES (6, 'f', 1)"), 2),
    ("a key is changed", BASE, ("UPDATE doc SET id = 9 WHERE id = 2",), 1),
    ("what was rolled back never was", BASE, ("BEGIN NOT ATOMIC START TRANSACTION; INSERT INTO doc VALUES (8, '', 1); "
     "SAVEPOINT a; DELETE FROM doc; ROLLBACK TO a; ROLLBACK; END", "DELETE FROM doc WHERE id = 1"), 0),
    ("part of a transaction is rolled back", BASE, ("BEGIN NOT ATOMIC START TRANSACTION; "
     "UPDATE doc SET n = 5 WHERE id = 3; SAVEPOINT a; DELETE FROM doc; ROLLBACK TO a; COMMIT; END",), 1),
    ("replaced", BASE, ("REPLACE INTO doc VALUES (3, 'x', 1), (31, 'y', 1)",), 2),
    ("only the key and what changed is logged", BASE, ("SET STATEMENT binlog_row_image = MINIMAL FOR "
     "UPDATE doc SET n = 1 WHERE id = 2", "SET STATEMENT binlog_row_image = MINIMAL FOR DELETE FROM doc WHERE id = 1",
     "SET STATEMENT binlog_row_image = MINIMAL FOR UPDATE doc SET id = 9 WHERE id = 3",
     "SET STATEMENT binlog_row_image = NOBLOB FOR INSERT INTO doc VALUES (6, 'f', 1)"), 3),
    ("a column comes before the key", BASE, ("UPDATE doc SET n = 1 WHERE id = 1",
     "ALTER TABLE doc ADD COLUMN more int FIRST", "UPDATE doc SET more = 5 WHERE id = 2"), 5),
    ("a column goes between two changes", BASE, ("UPDATE doc SET n = 1 WHERE id = 1",
     "ALTER TABLE doc DROP COLUMN n", "UPDATE doc SET body = 'b' WHERE id = 2"), 5),
    ("a column goes, and no row changes", BASE, ("ALTER TABLE doc DROP COLUMN n",), 0),
    ("a column is made again", BASE,
     ("ALTER TABLE doc DROP COLUMN n", "ALTER TABLE doc ADD COLUMN n int DEFAULT 7"), 5),
    ("a column is renamed", BASE, ("UPDATE doc SET n = 1 WHERE id = 1",
     "ALTER TABLE doc RENAME COLUMN n TO m", "UPDATE doc SET m = 2 WHERE id = 2"), 5),
    ("a type is widened", BASE, ("UPDATE doc SET n = 1 WHERE id = 1", "ALTER TABLE doc MODIFY n bigint"), 5),
    ("the key is widened", BASE, ("UPDATE doc SET n = 1 WHERE id = 1", "ALTER TABLE doc MODIFY id bigint",
     "INSERT INTO doc VALUES (5000000000, '', 1)"), 6),
    ("an index", BASE, ("UPDATE doc SET n = 1 WHERE id = 1", "CREATE INDEX doci ON doc (n)",
     "ALTER TABLE doc ADD KEY (n, id), COMMENT 'it''s, DROP COLUMN n', ENGINE = InnoDB", "OPTIMIZE TABLE doc"), 1),
    ("tables change places", BASE, ("CREATE TABLE docx (id int PRIMARY KEY, body longtext, n int)",
     "INSERT INTO docx VALUES (1, 'new', 2)", "RENAME TABLE doc TO docy, docx TO doc", "DROP TABLE docy"), 1),
    ("rows follow another table's by a foreign key", ("CREATE TABLE docp (id int PRIMARY KEY)",
     "CREATE TABLE doc (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES docp (id) ON DELETE CASCADE)",
     "INSERT INTO docp VALUES (1), (2)", "INSERT INTO doc VALUES (1, 1), (2, 1), (3, 2)"),
     ("DELETE FROM docp WHERE id = 1",), 1),
    ("rows follow a table that is called otherwise by now", (
     "CREATE TABLE docp (id int PRIMARY KEY)",
     "CREATE TABLE doc (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES docp (id) ON DELETE CASCADE)",
     "INSERT INTO docp VALUES (1), (2)", "INSERT INTO doc VALUES (1, 1), (2, 1), (3, 2)"),
     ("CREATE TABLE docr (id int PRIMARY KEY)", "DELETE FROM docp WHERE id = 1",
      "RENAME TABLE docp TO docq, docr TO docp"), 1),
    ("rows follow by a table whose own foreign key is gone", (
     "CREATE TABLE docp (id int PRIMARY KEY)",
     "CREATE TABLE docm (id int PRIMARY KEY, p int, CONSTRAINT docf FOREIGN KEY (p) REFERENCES docp (id) "
     "ON DELETE CASCADE)",
     "CREATE TABLE doc (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES docm (id) ON DELETE CASCADE)",
     "INSERT INTO docp VALUES (1), (2)", "INSERT INTO docm VALUES (1, 1), (2, 2)",
     "INSERT INTO doc VALUES (1, 1), (2, 1), (3, 2)"),
     ("DELETE FROM docp WHERE id = 1", "ALTER TABLE docm DROP FOREIGN KEY docf"), 1),
    ("rows follow a table that gets a column", (
     "CREATE TABLE docp (id int PRIMARY KEY)",
     "CREATE TABLE doc (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES docp (id) ON DELETE CASCADE)",
     "INSERT INTO docp VALUES (1)", "INSERT INTO doc VALUES (1, 1), (2, 1)"),
     ("ALTER TABLE docp ADD COLUMN n int", "UPDATE doc SET p = NULL WHERE id = 2"), 1),
    ("partitions", PARTED,
     ("UPDATE doc SET id = 12 WHERE id = 1", "INSERT INTO doc VALUES (3, 'c')"), 2),
    ("a partition goes", PARTED,
     ("ALTER TABLE doc DROP PARTITION a",), 1),
    ("columns that are computed", ("CREATE TABLE doc (a int, v int AS (a + 1) VIRTUAL, id int PRIMARY KEY, "
     "s int AS (a + 2) PERSISTENT, KEY (v))", "INSERT INTO doc (a, id) VALUES (1, 1), (2, 2)"),
     ("UPDATE doc SET a = 9 WHERE id = 2",), 1),
    ("a table without transactions", ("CREATE TABLE doc (id int PRIMARY KEY, v int) ENGINE = MyISAM",
     "INSERT INTO doc VALUES (1, 1), (2, 2)"), ("UPDATE doc SET v = 3 WHERE id = 1",), 1),
    ("a transaction that waits for its second phase", BASE, ("XA START 'doc'", "UPDATE doc SET n = 1 WHERE id = 1",
     "XA END 'doc'", "XA PREPARE 'doc'", "XA COMMIT 'doc'"), 1),
]  # fmt: skip


def test_changes(binlog_world: BinlogWorld) -> None:
    check_cases(binlog_world, CASES)


KINDS = (
    ("tinyint", "-5"), ("smallint unsigned", "65535"), ("mediumint", "-8388608"),
    ("int(5) unsigned zerofill", "7"), ("bigint unsigned", "18446744073709551615"),
    ("bigint", "-9223372036854775808"), ("year", "2026"), ("bit(13)", "b'1000000000001'"), ("tinyint(1)", "5"),
    ("float", "0.1"), ("double", "1e-300"), ("double(9,3)", "0.125"), ("decimal(10,2)", "-1.10"),
    ("decimal(38,10)", "-1234567890123456789.0000000001"), ("decimal(5,0)", "99999"),
    ("decimal(9,9)", "0.000000001"), ("char(4) character set latin1", "'é'"),
    ("varchar(300) character set utf8mb4", "'🫖 it''s'"), ("binary(4)", "x'00ff'"), ("varbinary(9)", "x'00'"),
    ("date", "'0000-00-00'"), ("date", "'9999-12-31'"), ("datetime(3)", "'2024-02-29 23:59:59.125'"),
    ("datetime", "'0000-00-00 00:00:00'"), ("timestamp(6) default 0", "'2024-01-01 00:00:00.000001'"),
    ("timestamp default 0", "0"), ("time(1)", "'-00:00:00.5'"), ("time", "'-838:59:59'"),
    ("time(6)", "'12:00:00.000001'"), ("enum('a','it''s')", "'it''s'"), ("set('x','y','z')", "'x,z'"),
    ("uuid", "'11111111-2222-4333-8444-555555555555'"), ("uuid", "'01890000-2222-7333-8444-555555555555'"),
    ("varchar(20) character set utf8mb4 collate utf8mb4_general_ci", "'ABC  '"),
    ("char(3) character set ucs2", "'ü'"),
)  # fmt: skip


@pytest.mark.slow
def test_keys_of_all_types(binlog_world: BinlogWorld) -> None:
    world = binlog_world
    for number, (kind, _) in enumerate(KINDS):
        world.run(f"CREATE TABLE k{number} (v int, id {kind}, PRIMARY KEY (id))")
    world.run("CREATE TABLE both_ (a text, id int, v int, PRIMARY KEY (a(10), id))")
    world.sync()
    for number, (_, value) in enumerate(KINDS):
        world.run(f"INSERT INTO k{number} VALUES (1, {value})")  # noqa: S608
    world.run("INSERT INTO both_ VALUES ('x', 1, 1), ('y', 2, 1)")
    report = world.sync()
    assert world.differing() == {}, report
    assert {t.read for t in report.tables} == {1, 2}, report
    for number in range(len(KINDS)):
        world.run(f"UPDATE k{number} SET v = 2")  # noqa: S608
    world.run("DELETE FROM both_ WHERE id = 1")
    world.sync()
    assert world.differing() == {}
    for number in range(len(KINDS)):
        world.run(f"DELETE FROM k{number}")  # noqa: S608
    report = world.sync()
    assert world.differing() == {}
    assert {t.read for t in report.tables} == {0}, report
    assert report.notes == ()


@pytest.mark.slow
def test_a_statement_in_place_of_its_rows(binlog_world: BinlogWorld) -> None:
    """What else it changed, by triggers, nobody knows."""
    world = binlog_world
    world.run(*BASE, "CREATE TABLE other (id int PRIMARY KEY)")
    world.sync()
    world.run("SET STATEMENT binlog_format = STATEMENT FOR UPDATE doc SET n = 1 WHERE id = 2")
    report = world.sync()
    assert "binlog_format was not ROW" in " ".join(report.notes)
    assert world.differing() == {}
    assert counts(report, "doc")[:3] == (5, 0, 1)


def test_a_large_transaction_of_a_larger_table_is_read_by_key(
    binlog_world: BinlogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys beyond what is in memory are on disk, and several connections read their rows."""
    monkeypatch.setattr(keyset, "IN_MEMORY", 100)
    monkeypatch.setattr(log, "SQL_KEYS", 20)
    world = binlog_world
    world.log["limit"] = 10
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int) ENGINE=InnoDB",
        "INSERT INTO t SELECT seq, 0 FROM seq_1_to_4000",
        "ANALYZE TABLE t",
    )
    assert world.sync().status == "done"
    world.run("UPDATE t SET v = id WHERE id % 5 = 0", "DELETE FROM t WHERE id = 5")
    report = world.sync()
    assert counts(report, "t")[:4] == (799, 0, 799, 1)
    assert "read by 4 connections that show one state" in notes(report)
    assert world.differing() == {}
    world.run("UPDATE t SET v = 7")
    report = world.sync()
    assert "of its rows changed" in notes(report)
    assert world.differing() == {}
