"""What becomes of each kind of change, and of tables that cannot follow the log."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from followed import FollowCase, Followed, check_cases, same_cases
from log_world import LogWorld

from contract.destinations import DESTINATIONS
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.project.sections.tables import TableSettings
from instep.schema.selection.selection import Pattern, Selection
from instep.sync.operations.restore import prepare, restore, savepoints
from postgres_server import Database
from sync_world import counts, cursor, preset

pytestmark = pytest.mark.server

TOAST = (
    "CREATE TABLE doc (id int PRIMARY KEY, body text, n int)",
    "ALTER TABLE doc ALTER COLUMN body SET STORAGE EXTERNAL",
    "INSERT INTO doc SELECT i, repeat(chr(64 + i), 9000), 0 FROM generate_series(1, 5) i",
)
CASES: list[FollowCase] = [
    *same_cases(TOAST),
    ("a large value that is not touched stays", TOAST, ("UPDATE doc SET n = 1 WHERE id = 2",), 1),
    ("a key is changed beside a large value", TOAST, ("UPDATE doc SET id = 9 WHERE id = 2",), 1),
    ("what was rolled back never was", TOAST, ("DO $$BEGIN INSERT INTO doc VALUES (8); RAISE division_by_zero; "
     "EXCEPTION WHEN division_by_zero THEN NULL; END$$", "DELETE FROM doc WHERE id = 1"), 0),
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
    ("a partitioned table", ("CREATE TABLE doc (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
     "CREATE TABLE doca PARTITION OF doc FOR VALUES FROM (0) TO (10)",
     "CREATE TABLE docb PARTITION OF doc FOR VALUES FROM (10) TO (20)", "INSERT INTO doc VALUES (1, 'a'), (11, 'b')"),
     ("UPDATE doc SET id = 12 WHERE id = 1", "INSERT INTO doc VALUES (3, 'c')", "DELETE FROM doca WHERE id = 99"), 2),
    ("keys of odd types", ("CREATE TABLE doc (t timestamptz, u uuid, b bytea, f float8, d numeric, c char(4), "
     "e boolean, PRIMARY KEY (t, u, b, f, d, c, e))",
     "INSERT INTO doc SELECT now() + i * interval '1 us', gen_random_uuid(), '\\x00ff', 1e-300 * i, 1.10, 'x', true "
     "FROM generate_series(1, 4) i"),
     ("UPDATE doc SET f = 0.1 + 0.2 WHERE f = 1e-300", "DELETE FROM doc WHERE f = 2e-300",
      "UPDATE doc SET d = 1.1000"), 3),
]  # fmt: skip


def test_changes(world: LogWorld) -> None:
    check_cases(world, CASES)


NOT_FOLLOWED: list[tuple[str, tuple[str, ...], str, str]] = [
    ("no key", ("CREATE TABLE x (v int)", "INSERT INTO x VALUES (1), (1)"), "INSERT INTO x VALUES (2)", ""),
    ("not logged", ("CREATE UNLOGGED TABLE x (id int PRIMARY KEY)",), "INSERT INTO x VALUES (2)", "it is not logged"),
    ("nothing identifies its rows", ("CREATE TABLE x (id int PRIMARY KEY)", "ALTER TABLE x REPLICA IDENTITY NOTHING"),
     "INSERT INTO x VALUES (2)", 'ALTER TABLE "public"."x" REPLICA IDENTITY DEFAULT;'),
    ("inherited", ("CREATE TABLE x (id int PRIMARY KEY)", "CREATE TABLE y () INHERITS (x)",
                   "INSERT INTO y VALUES (1)"), "INSERT INTO y VALUES (2)", "inherit from it"),
]  # fmt: skip


@pytest.mark.slow
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


BOTH = ("INSERT INTO x (id, a) VALUES (1, 1)", "INSERT INTO x (id, a) VALUES (2, 2)")
GENERATED = [
    ("a key", ("CREATE TABLE x (a int, id int GENERATED ALWAYS AS (a * 2) STORED PRIMARY KEY, v int)",),
     ("INSERT INTO x VALUES (1)", "INSERT INTO x VALUES (2)"), 0),
    ("the whole row", ("CREATE TABLE x (id int PRIMARY KEY, a int, v int, b int GENERATED ALWAYS AS (a * 2) STORED)",
     "ALTER TABLE x REPLICA IDENTITY FULL"), BOTH, 180_000),
    ("the whole row of a partition", ("CREATE TABLE x (id int PRIMARY KEY, a int, v int, "
     "b int GENERATED ALWAYS AS (a * 2) STORED) PARTITION BY RANGE (id)",
     "CREATE TABLE x1 PARTITION OF x DEFAULT", "ALTER TABLE x1 REPLICA IDENTITY FULL"), BOTH, 180_000),
]  # fmt: skip


@pytest.mark.parametrize(("before", "rows", "since"), [c[1:] for c in GENERATED], ids=[c[0] for c in GENERATED])
def test_a_generated_column_that_names_rows(
    world: LogWorld, before: tuple[str, ...], rows: tuple[str, str], since: int
) -> None:
    """It is in no publication, in which the server refuses each update of such a table from version 18 on."""
    world.run(*before, rows[0])
    world.sync()
    world.run("UPDATE x SET v = 7", rows[1])
    report = world.sync()
    if world.sql("SELECT current_setting('server_version_num')::int") >= since:
        assert "its replica identity has the generated column" in " ".join(report.notes), report
    assert set(world.statuses(report).values()) == {"done"}
    world.run("UPDATE x SET v = 8", "DELETE FROM x WHERE a = 1")
    world.sync()
    assert world.differing() == {}


def test_a_generated_column_that_comes_to_name_rows(world: LogWorld) -> None:
    """Its table is published already: the report has the statement after which the source accepts updates again."""
    world.run("CREATE TABLE x (id int PRIMARY KEY, v int, b int GENERATED ALWAYS AS (id * 2) STORED)")
    world.sync()
    if world.sql("SELECT current_setting('server_version_num')::int") < 180_000:
        pytest.skip("only later servers refuse updates")
    world.run("ALTER TABLE x REPLICA IDENTITY FULL", "INSERT INTO x (id) VALUES (1)")
    note = next(n for n in world.sync().notes if "refuse updates: " in n)
    world.run(note.split("refuse updates: ")[1], "UPDATE x SET v = 7")
    world.sync()
    assert world.differing() == {}


@pytest.mark.parametrize(
    "settings",
    [TableSettings(mode="cdc"), TableSettings(), cursor("v"), TableSettings(history=True)],
    ids=["cdc", "compared", "cursor", "history"],
)
def test_a_key_that_an_inheriting_table_repeats(world: LogWorld, settings: TableSettings) -> None:
    """The primary key holds in each of both tables, and not for the rows that a query of the parent returns."""
    world.settings["x"] = settings
    world.run(
        "CREATE TABLE x (id int PRIMARY KEY, v int NOT NULL)",
        "CREATE TABLE y (PRIMARY KEY (id)) INHERITS (x)",
        "INSERT INTO x VALUES (1, 1), (2, 2)",
        "INSERT INTO y VALUES (3, 3)",
    )
    assert set(world.statuses(world.sync()).values()) == {"done"}
    world.run("INSERT INTO y VALUES (1, 10)", "INSERT INTO x VALUES (4, 4)")
    report = world.sync()
    failed = next(t for t in report.tables if t.table[1] == "x")
    assert failed.status == "failed"
    assert "the key id, which the source does not guarantee, is not unique: 1 rows share it" in failed.error
    world.run("UPDATE y SET id = 5 WHERE id = 1")
    assert set(world.statuses(world.sync()).values()) == {"done"}
    assert world.differing() == {}


def test_a_key_of_the_settings_needs_to_identify_rows_in_the_log(world: LogWorld) -> None:
    world.settings["x"] = TableSettings(mode="cdc", key=("a",))
    world.run("CREATE TABLE x (a int NOT NULL, v int)", "INSERT INTO x VALUES (1, 1), (2, 2)")
    assert "REPLICA IDENTITY FULL" in " ".join(world.sync().notes)
    world.run("ALTER TABLE x REPLICA IDENTITY FULL", "UPDATE x SET v = 3 WHERE a = 1")
    world.sync()
    world.run("UPDATE x SET a = 9 WHERE a = 1", "DELETE FROM x WHERE a = 2")
    assert counts(world.sync(), "x")[:4] == (1, 1, 0, 2)
    assert world.differing() == {}


SLOW = pytest.mark.slow
DELETES = [pytest.param("soft", 2, marks=SLOW), ("hard", 1), pytest.param("ignore", 2, marks=SLOW)]


@pytest.mark.parametrize(("deletes", "left"), DELETES)
def test_deleted_rows(either: Followed, deletes: Any, left: int) -> None:
    world = either
    world.settings["t"] = TableSettings(mode="cdc", deletes=deletes)
    world.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    world.sync()
    world.run("DELETE FROM t WHERE id = 1")
    world.sync()
    assert len(world.rows("t", "id", deleted=True)) == left
    assert len(world.rows("t", "id")) == (2 if deletes == "ignore" else 1)


def test_a_held_column_is_not_read_and_comes_whole_when_it_is_let_in(either: Followed) -> None:
    world = either
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


@pytest.mark.slow
def test_a_table_in_the_place_of_another(world: LogWorld) -> None:
    world.run(*TOAST)
    world.sync()
    world.run("DROP TABLE doc", "CREATE TABLE doc (id int PRIMARY KEY, n int)", "INSERT INTO doc VALUES (1, 1)")
    world.sync()
    world.run("INSERT INTO doc VALUES (2, 2)")
    assert counts(world.sync(), "doc")[0] == 1
    assert world.differing() == {}


def test_a_new_table_is_taken_in(world: LogWorld) -> None:
    world.run(*TOAST)
    world.sync()
    world.run('CREATE TABLE "Odd ""name" (id text PRIMARY KEY)', """INSERT INTO "Odd ""name" VALUES ('\\'), ('''')""")
    world.sync()
    world.run("""UPDATE "Odd ""name" SET id = id || id""")
    assert counts(world.sync(), 'Odd "name')[:4] == (2, 2, 0, 2)
    assert world.differing() == {}


def test_a_destination_that_cannot_ask_reads_all_keys(either: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    world = either
    plain = replace(world.destination.capabilities, merges_requested=False)
    monkeypatch.setattr(world.destination, "capabilities", plain)
    world.run("CREATE TABLE doc (id int PRIMARY KEY, n int)", "INSERT INTO doc VALUES (1, 0), (2, 0), (3, 0)")
    world.sync()
    world.run("DELETE FROM doc WHERE id = 1", "UPDATE doc SET n = 1 WHERE id = 2")
    assert counts(world.sync(), "doc")[:4] == (1, 0, 1, 1)
    assert world.differing() == {}


@pytest.mark.slow
def test_values_that_do_not_fit_are_held(world: LogWorld) -> None:
    world.run("CREATE TABLE m (id int PRIMARY KEY, v int)", "INSERT INTO m VALUES (1, 5), (2, 6)")
    world.sync()
    world.policy = preset("approve")
    world.run("ALTER TABLE m ALTER COLUMN v TYPE text USING v::text", "UPDATE m SET v = 'odd' WHERE id = 2")
    world.sync()
    world.run("UPDATE m SET v = 'strange' WHERE id = 1")
    assert counts(world.sync(), "m")[4] == 1
    assert world.rows("m", "id", "v") == [(1, None), (2, None)]


@pytest.mark.slow
def test_hashed_keys(either: Followed) -> None:
    world = either
    world.selection = Selection(hashed=(Pattern(f"{world.case.schema}.doc.id"),))
    world.run("CREATE TABLE doc (id int PRIMARY KEY, n int)", "INSERT INTO doc VALUES (1, 0), (2, 0), (3, 0)")
    world.sync()
    world.run("DELETE FROM doc WHERE id = 1", "UPDATE doc SET id = 77 WHERE id = 2")
    assert counts(world.sync(), "doc")[:4] == (1, 1, 0, 2)
    assert world.differing() == {}


@pytest.mark.slow
def test_a_backfill_and_a_restore_leave_no_gap(either: Followed) -> None:
    world = either
    world.run("CREATE TABLE doc (id int PRIMARY KEY, n int)", "INSERT INTO doc VALUES (1, 0), (2, 0), (3, 0)")
    world.sync()
    world.run("UPDATE doc SET n = 5 WHERE id = 1")
    world.sync(kind="backfill", tables=frozenset({f"{world.case.schema}.doc"}))
    world.run("UPDATE doc SET n = 6 WHERE id = 2")
    assert counts(world.sync(), "doc")[0] == 1
    assert world.differing() == {}


@pytest.mark.parametrize("kind", [pytest.param("iceberg", marks=pytest.mark.slow), "duckdb"])
def test_into_real_tables(database: Database, tmp_path: Path, kind: str) -> None:
    lake: Any = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    file: Any = DuckDbDestination(DuckDbConfig.resolved(name="file", path=str(tmp_path / "file.duckdb")))
    world = LogWorld.of(database, tmp_path, {"iceberg": lake, "duckdb": file}[kind])
    world.run(*TOAST)
    world.sync()
    world.run("UPDATE doc SET n = 1 WHERE id = 2", "DELETE FROM doc WHERE id = 3", "UPDATE doc SET id = 9 WHERE id = 4")
    assert counts(world.sync(), "doc") == (2, 1, 1, 2, 0)
    assert world.differing() == {}
    world.run("DELETE FROM doc")
    assert counts(world.sync(), "doc")[:4] == (0, 0, 0, 4)
    assert world.differing() == {}
    world.close()


@pytest.mark.parametrize("kind", ["duckdb", "delta", pytest.param("iceberg", marks=pytest.mark.slow)])
def test_a_table_whose_last_key_goes(database: Database, tmp_path: Path, kind: str) -> None:
    """A source without a key that can be loaded has no other row either, by its log and by a cursor."""
    world = LogWorld.of(database, tmp_path, DESTINATIONS[kind](tmp_path))
    world.settings["b"] = cursor("n")
    for name in "abc":
        rows = "('2024-02-29', 1), ('2024-03-01', 2)"
        world.run(f"CREATE TABLE {name} (id date PRIMARY KEY, n int)", f"INSERT INTO {name} VALUES {rows}")  # noqa: S608
    world.run("INSERT INTO b VALUES ('infinity', 3)", "INSERT INTO c VALUES ('infinity', 3)")
    world.sync()
    world.run(*(f"DELETE FROM {name} WHERE n < 3" for name in "abc"), "UPDATE c SET n = 4")  # noqa: S608
    report = world.sync()
    assert [world.rows(name) for name in "abc"] == [[], [], []], report
    assert [counts(report, name)[3] for name in "abc"] == [2, 2, 2]
    world.close()


def test_rows_that_enter_and_leave_a_filter(world: LogWorld) -> None:
    world.settings["doc"] = TableSettings(mode="cdc", filter="n > 0")
    world.run(*TOAST, "UPDATE doc SET n = id - 2")
    world.sync()
    assert world.rows("doc", "id") == [(3,), (4,), (5,)]
    world.run("UPDATE doc SET n = 1 WHERE id = 1", "UPDATE doc SET n = 0 WHERE id = 5")
    assert counts(world.sync(), "doc")[:4] == (1, 1, 0, 1)
    assert world.rows("doc", "id") == [(1,), (3,), (4,)]
    world.settings["doc"] = TableSettings(mode="cdc", filter="n >= 0")
    world.sync()
    assert world.rows("doc", "id") == [(1,), (2,), (3,), (4,), (5,)]
    assert world.differing() == {}


@pytest.mark.slow
def test_a_table_that_is_put_back_follows_on(database: Database, tmp_path: Path) -> None:
    """The server has forgotten that part of its log, so that the table is read as a whole."""
    world = LogWorld.of(
        database, tmp_path, IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    )
    world.run(*TOAST)
    world.sync()
    world.run("UPDATE doc SET n = 1 WHERE id = 2", "DELETE FROM doc WHERE id = 3")
    world.sync()
    path = world.accepted("doc").path
    made = prepare(world.context, path, savepoints(world.context, path)[1][1].id)
    assert any("reads the log from there on, or the whole table" in line for line in made.lines)
    restore(world.context, made, [path])
    assert world.differing() != {}
    world.sync()
    assert world.differing() == {}
    world.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", [TableSettings(mode="cdc"), cursor("v")], ids=["by the log", "by another cursor"])
def test_a_table_that_is_put_back_to_before_it_was_read_otherwise(
    database: Database, tmp_path: Path, how: TableSettings
) -> None:
    world = LogWorld.of(
        database, tmp_path, IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    )
    world.settings["doc"] = cursor("n")
    world.run("CREATE TABLE doc (id int PRIMARY KEY, n int, v int)", "INSERT INTO doc VALUES (1, 1, 7), (2, 2, 8)")
    world.sync()
    world.settings["doc"] = how
    world.run("INSERT INTO doc VALUES (3, 1, 9)")
    world.sync()
    world.answer("approved")
    world.sync()
    path = world.accepted("doc").path
    made = prepare(world.context, path, savepoints(world.context, path)[1][-1].id)
    assert ("column" in made.point.cursor, made.rows) == (True, 2)
    assert "the next sync reads the whole table again" in made.lines
    restore(world.context, made, [path])
    assert counts(world.sync(), "doc")[0] == 3
    assert world.differing() == {}
    world.close()


def test_chosen_types_hold_for_changes_from_the_log(either: Followed) -> None:
    either.settings["t"] = TableSettings(mode="cdc")
    either.types = {"numeric": "decimal(38,9)", "decimal(65,*)": "decimal(38,9)"}
    kind = "numeric" if either.case.kind == "postgres" else "decimal(65,20)"
    either.run(f"CREATE TABLE t (id int PRIMARY KEY, v {kind})", "INSERT INTO t VALUES (1, 1.5)")
    either.sync()
    either.run("UPDATE t SET v = 2.25 WHERE id = 1", "INSERT INTO t VALUES (2, 1.0000000001)")
    assert [(t.read, t.invalid_values) for t in either.sync().tables] == [(2, 1)]
    assert either.rows("t") == [(1, Decimal("2.25")), (2, None)]
    assert [t.read for t in either.sync().tables] == [0]
