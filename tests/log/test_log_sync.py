"""What becomes of each kind of change, and of tables that cannot follow the log."""

from __future__ import annotations

from typing import Any

import pytest
from log_world import LogWorld

from instep.model import TableSettings
from sync_world import counts, preset

TOAST = (
    "CREATE TABLE doc (id int PRIMARY KEY, body text, n int)",
    "ALTER TABLE doc ALTER COLUMN body SET STORAGE EXTERNAL",
    "INSERT INTO doc SELECT i, repeat(chr(64 + i), 9000), 0 FROM generate_series(1, 5) i",
)
CASES: list[tuple[str, tuple[str, ...], tuple[str, ...], int]] = [
    ("a large value that is not touched stays", TOAST, ("UPDATE doc SET n = 1 WHERE id = 2",), 1),
    ("a key is changed beside a large value", TOAST, ("UPDATE doc SET id = 9 WHERE id = 2",), 1),
    ("all keys are changed", TOAST, ("UPDATE doc SET id = id + 100",), 5),
    ("a truncate", TOAST, ("TRUNCATE doc", "INSERT INTO doc VALUES (2, 'again', 1), (7, 'new', 1)"), 2),
    ("a truncate of all", TOAST, ("TRUNCATE doc",), 0),
    ("what was rolled back never was", TOAST, ("DO $$BEGIN INSERT INTO doc VALUES (8); RAISE division_by_zero; "
     "EXCEPTION WHEN division_by_zero THEN NULL; END$$", "DELETE FROM doc WHERE id = 1"), 0),
    ("deleted and inserted again", TOAST, ("DELETE FROM doc WHERE id = 3", "INSERT INTO doc VALUES (3, 'x', 1)"), 1),
    ("inserted and deleted", TOAST, ("INSERT INTO doc VALUES (30)", "DELETE FROM doc WHERE id = 30"), 0),
    ("a column comes between two changes", TOAST, ("UPDATE doc SET n = 1 WHERE id = 1",
     "ALTER TABLE doc ADD COLUMN more int", "UPDATE doc SET more = 5 WHERE id = 2"), 2),
    ("a column goes between two changes", TOAST, ("UPDATE doc SET n = 1 WHERE id = 1",
     "ALTER TABLE doc DROP COLUMN n", "UPDATE doc SET body = 'b' WHERE id = 2"), 2),
    ("a column is renamed between two changes", TOAST, ("UPDATE doc SET n = 1 WHERE id = 1",
     "ALTER TABLE doc RENAME COLUMN n TO m", "UPDATE doc SET m = 2 WHERE id = 2"), 2),
    ("the table is renamed between two changes", TOAST, ("UPDATE doc SET n = 1 WHERE id = 1",
     "ALTER TABLE doc RENAME TO doc2", "UPDATE doc2 SET n = 2 WHERE id = 2"), 2),
    ("a type is widened by a formula", TOAST, ("UPDATE doc SET n = 1 WHERE id = 1",
     "ALTER TABLE doc ALTER COLUMN n TYPE bigint USING n + 7"), 5),
    ("the key is widened", TOAST, ("UPDATE doc SET n = 1 WHERE id = 1",
     "ALTER TABLE doc ALTER COLUMN id TYPE bigint", "INSERT INTO doc VALUES (5000000000, '', 1)"), 6),
    ("the replica identity becomes the whole row", TOAST, ("UPDATE doc SET n = 1 WHERE id = 1",
     "ALTER TABLE doc REPLICA IDENTITY FULL", "UPDATE doc SET id = 50, n = 2 WHERE id = 2",
     "DELETE FROM doc WHERE id = 3"), 2),
    ("a partitioned table", ("CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
     "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
     "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)", "INSERT INTO p VALUES (1, 'a'), (11, 'b')"),
     ("UPDATE p SET id = 12 WHERE id = 1", "INSERT INTO p VALUES (3, 'c')", "DELETE FROM p1 WHERE id = 99"), 2),
    ("keys of odd types", ("CREATE TABLE k (t timestamptz, u uuid, b bytea, f float8, d numeric, c char(4), "
     "e boolean, PRIMARY KEY (t, u, b, f, d, c, e))",
     "INSERT INTO k SELECT now() + i * interval '1 us', gen_random_uuid(), '\\x00ff', 1e-300 * i, 1.10, 'x', true "
     "FROM generate_series(1, 4) i"),
     ("UPDATE k SET f = 0.1 + 0.2 WHERE f = 1e-300", "DELETE FROM k WHERE f = 2e-300", "UPDATE k SET d = 1.1000"), 3),
]  # fmt: skip


@pytest.mark.parametrize(("before", "changes", "read"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_changes(world: LogWorld, before: tuple[str, ...], changes: tuple[str, ...], read: int) -> None:
    world.run(*before)
    world.sync()
    world.run(*changes)
    report = world.sync()
    assert world.differing() == {}, report
    [table] = report.tables
    assert (table.status, table.read) == ("done", read), report
    assert world.sync().tables[0].read == 0


NOT_FOLLOWED: list[tuple[str, tuple[str, ...], str, str]] = [
    ("no key", ("CREATE TABLE x (v int)", "INSERT INTO x VALUES (1), (1)"), "INSERT INTO x VALUES (2)", ""),
    ("not logged", ("CREATE UNLOGGED TABLE x (id int PRIMARY KEY)",), "INSERT INTO x VALUES (2)", "it is not logged"),
    ("nothing identifies its rows", ("CREATE TABLE x (id int PRIMARY KEY)", "ALTER TABLE x REPLICA IDENTITY NOTHING"),
     "INSERT INTO x VALUES (2)", 'ALTER TABLE "public"."x" REPLICA IDENTITY DEFAULT;'),
    ("inherited", ("CREATE TABLE x (id int PRIMARY KEY)", "CREATE TABLE y () INHERITS (x)",
                   "INSERT INTO y VALUES (1)"), "INSERT INTO y VALUES (2)", "inherit from it"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "change", "note"), [c[1:] for c in NOT_FOLLOWED], ids=[c[0] for c in NOT_FOLLOWED])
def test_what_cannot_be_followed_is_read_as_a_whole(
    world: LogWorld, before: tuple[str, ...], change: str, note: str
) -> None:
    world.run(*before)
    world.sync()
    world.run(change)
    report = world.sync()
    assert set(world.statuses(report).values()) == {"done"}, report
    assert world.differing() == {}
    assert note in " ".join(report.notes)


def test_a_key_of_the_settings_needs_to_identify_rows_in_the_log(world: LogWorld) -> None:
    world.settings["x"] = TableSettings(mode="log", key=("a",))
    world.run("CREATE TABLE x (a int NOT NULL, v int)", "INSERT INTO x VALUES (1, 1), (2, 2)")
    assert "REPLICA IDENTITY FULL" in " ".join(world.sync().notes)
    world.run("ALTER TABLE x REPLICA IDENTITY FULL", "UPDATE x SET v = 3 WHERE a = 1")
    world.sync()
    world.run("UPDATE x SET a = 9 WHERE a = 1", "DELETE FROM x WHERE a = 2")
    assert counts(world.sync(), "x")[:4] == (1, 1, 0, 2)
    assert world.differing() == {}


@pytest.mark.parametrize(("deletes", "left"), [("soft", 2), ("hard", 1), ("ignore", 2)])
def test_deleted_rows(world: LogWorld, deletes: Any, left: int) -> None:
    world.settings["t"] = TableSettings(mode="log", deletes=deletes)
    world.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    world.sync()
    world.run("DELETE FROM t WHERE id = 1")
    world.sync()
    assert len(world.rows("t", "id", deleted=True)) == left
    assert len(world.rows("t", "id")) == (2 if deletes == "ignore" else 1)


def test_a_held_column_is_not_read_and_comes_whole_when_it_is_let_in(world: LogWorld) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    world.sync()
    world.policy = preset("approve")
    world.run("ALTER TABLE t ADD COLUMN b int", "UPDATE t SET b = 7, a = 5 WHERE id = 1")
    assert counts(world.sync(), "t")[0] == 1
    assert world.rows("t", "id", "a") == [(1, 5), (2, 2)]
    world.run("INSERT INTO t VALUES (3, 3, 3)")
    world.sync()
    world.answer("approved")
    world.evolve()
    world.sync()
    assert world.differing() == {}
    assert world.rows("t", "id", "b") == [(1, 7), (2, None), (3, 3)]


TYPES = (
    "boolean", "smallint", "integer", "bigint", "real", "double precision", "text", "varchar(5)", "char(6)", "bytea",
    "date",
    "timestamp", "timestamptz", "uuid", "json", "jsonb", "time", "timetz", "numeric", "numeric(10,3)", "money", "oid",
    "interval", "int[]", "text[]", "int4range", "inet", "bit(3)", "point", "tsvector", "mood", "pos", "macaddr",
)  # fmt: skip
VALUES = {
    "boolean": "true", "smallint": "-5", "integer": "7", "bigint": "9007199254740993", "real": "0.1",
    "double precision": "'Infinity'", "text": "E'a\\nb'", "varchar(5)": "'é'", "char(6)": "'x'", "bytea": "'\\x00'",
    "date": "'0099-01-01 BC'", "timestamp": "'infinity'", "timestamptz": "'2026-01-01 00:00:00.000001+05'",
    "uuid": "gen_random_uuid()", "json": "'{\"a\": 1.0}'", "jsonb": "'{\"b\": [1]}'", "time": "'24:00'",
    "timetz": "'10:00+02'", "numeric": "1e40", "numeric(10,3)": "1.5", "money": "'12.34'", "oid": "4294967295",
    "interval": "'1 mon 2 days 3.5 sec'", "int[]": "'{1,NULL,3}'", "text[]": "'{a,\"b,c\"}'", "int4range": "'[1,5)'",
    "inet": "'10.0.0.1/8'", "bit(3)": "'101'", "point": "'(1,2)'", "tsvector": "'a b'",
    "mood": "'happy'", "pos": "ROW(1, 'x')", "macaddr": "'08:00:2b:01:02:03'",
}  # fmt: skip


def test_values_of_all_types_are_those_of_a_whole_read(world: LogWorld) -> None:
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(TYPES))
    values = ", ".join(f"{VALUES[kind]}::{kind}" for kind in TYPES)
    world.run(
        "CREATE TYPE mood AS ENUM ('happy', 'sad')", "CREATE TYPE pos AS (x int, y text)",
        f"CREATE TABLE t (id int PRIMARY KEY, {columns})", f"INSERT INTO t SELECT 1, {values}",
    )  # fmt: skip
    world.sync()
    world.run(f"INSERT INTO t SELECT 2, {values}", "INSERT INTO t (id) VALUES (3)", "UPDATE t SET id = 4 WHERE id = 3")
    report = world.sync()
    assert world.differing() == {}, report
    rows = world.rows("t", *(f"c{n}" for n, kind in enumerate(TYPES) if kind != "uuid"))
    assert repr(rows[1]) == repr(rows[2])
