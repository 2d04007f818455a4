# ruff: noqa: S608 - statements of this file
"""A statement that changes values without writing rows reads the table again where a sync reads some of its rows only:
a retype, a renamed label, another formula, a rewrite."""

from __future__ import annotations

import pytest

from instep.schema.selection.selection import Selection, patterns
from sync_world import MakeWorld, World, counts, cursor, preset

CASES = {
    "bytes to text": ("bytea", r"'\x616263'", "text USING v::text", r"\x616263"),
    "list to text": ("int[]", "'{1,2}'", "text USING v::text", "{1,2}"),
    "interval to text": ("interval", "'1 day'", "text USING v::text", "1 day"),
    "json to jsonb": ("json", """'{"b":1,  "a":2}'""", "jsonb", '{"a": 2, "b": 1}'),
    "moment to text": ("timestamp", "'2024-02-29 10:00'", "text USING v::text", "2024-02-29 10:00:00"),
    "double to text": ("double precision", "1e-7", "text USING v::text", "1e-07"),
    "boolean to text": ("boolean", "true", "text USING v::int::text", "1"),
    "uuid to text": ("uuid", "'00000000-0000-0000-0000-0000000000ff'", "text USING upper(v::text)", None),
    "numeric of any scale": ("numeric(40,1)", "1.5", "numeric(42,3)", "1.500"),
    "shorter fraction": ("timestamp", "'2024-02-29 10:00:00.6'", "timestamp(0)", None),
    "shorter time": ("time", "'10:00:00.6'", "time(0)", None),
    "shorter list": ("numeric(10,4)[]", "'{1.2345}'", "numeric(10,1)[]", None),
    "fewer digits": ("numeric(10,4)", "1.2345", "numeric(8,2)", None),
    "smaller float": ("double precision", "0.123456789012", "real", None),
    "smaller integer": ("bigint", "5000000000", "int USING 7", None),
    "moment to date": ("timestamp", "'2024-02-29 10:00:00'", "date", None),
    "padded": ("varchar(4)", "'a'", "char(4)", None),
    "shorter text": ("varchar(9)", "'abcdef'", "varchar(3) USING left(v, 3)", "abc"),
    "text of some length": ("text", "'abcdef'", "varchar(3) USING left(v, 3)", "abc"),
}
ENUM = "CREATE TYPE kind AS ENUM ('a', 'b')"
RENAMED = "ALTER TYPE kind RENAME VALUE 'a' TO 'x'"
FORMULA = "ALTER TABLE t ALTER v SET EXPRESSION AS (u * 3)"
REDEFINED = {
    "postgres": {
        "label": (ENUM, "v kind", "'a'", RENAMED),
        "label in a list": (ENUM, "v kind[]", "'{b,a}'", RENAMED),
        "field": ("CREATE TYPE pair AS (l int, r int)", "v pair", "(1, 2)", "ALTER TYPE pair RENAME ATTRIBUTE l TO k"),
        "formula": ("SELECT 1", "u int, v int GENERATED ALWAYS AS (u * 2) STORED", "5", FORMULA),
        "virtual formula": ("SELECT 1", "u int, v int GENERATED ALWAYS AS (u * 2) VIRTUAL", "5", FORMULA),
        "same type": ("SELECT 1", "v int", "5", "ALTER TABLE t ALTER v TYPE int USING v * 2"),
    },
    "mysql": {
        "formula": ("DO 1", "u int, v int AS (u * 2) STORED", "5", "ALTER TABLE t MODIFY v int AS (u * 3) STORED"),
        "virtual formula": ("DO 1", "u int, v int AS (u * 2)", "5", "ALTER TABLE t MODIFY v int AS (u * 3)"),
    },
}
"""A statement before the table is made, columns, a value, and the statement that changes what it is."""
REDEFINITIONS = [(kind, case) for kind, cases in REDEFINED.items() for case in cases]


def loaded(make_world: MakeWorld, native: str, value: str) -> World:
    world = make_world("postgres", policy=preset("allow_all"), settings={"t": cursor("at")})
    world.run(f"CREATE TABLE t (id int PRIMARY KEY, at int, v {native})", f"INSERT INTO t VALUES (1, 0, {value})")
    world.run("INSERT INTO t VALUES (0, 1, NULL)")  # what has the cursor's last value is read by each sync
    world.sync()
    return world


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_whole_table_is_read_again(make_world: MakeWorld, case: tuple[str, str, str, str | None]) -> None:
    native, value, new, text = case
    world = loaded(make_world, native, value)
    world.run(f"ALTER TABLE t ALTER v TYPE {new}", "INSERT INTO t VALUES (2, 2, NULL)")
    world.sync()
    world.answer("approved")
    world.sync()
    assert world.differing() == {}
    if text is not None:
        assert sorted(world.rows("t", "id", "v")) == [(0, None), (1, text), (2, None)]
    assert counts(world.sync(), "t")[0] <= 1, "only what the cursor finds from then on"


@pytest.mark.sampled
@pytest.mark.parametrize(("kind", "case"), REDEFINITIONS, ids=" ".join)
def test_a_statement_that_writes_no_row_has_the_whole_table_read_again(
    make_world: MakeWorld, kind: str, case: str
) -> None:
    before, columns, value, statement = REDEFINED[kind][case]
    world = make_world(kind, policy=preset("allow_all"), settings={"t": cursor("at")})
    given = columns.partition(" ")[0]
    world.run(before, f"CREATE TABLE t (id int PRIMARY KEY, at int, {columns})")
    world.run(f"INSERT INTO t (id, at, {given}) VALUES (1, 1, {value}), (2, 2, NULL)")
    world.sync()
    assert counts(world.sync(), "t")[0] <= 1
    world.run(statement)
    report = world.sync()
    assert counts(report, "t")[0] == 2
    assert any("so the whole table is read" in note for note in report.notes)
    assert world.differing() == {}
    assert counts(world.sync(), "t")[0] <= 1, "only what the cursor finds from then on"


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_another_query_of_a_view_has_it_read_again(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind, settings={"t": cursor("at", key=["id"])})
    world.selection = Selection(include=patterns(["*.u", f"{world.case.schema}.t"]))
    world.run("CREATE TABLE u (id int PRIMARY KEY, at int, v int)", "INSERT INTO u VALUES (1, 1, 5), (2, 2, 6)")
    world.run("CREATE VIEW t AS SELECT id, at, v FROM u")
    world.sync()
    world.run("CREATE OR REPLACE VIEW t AS SELECT id, at, cast(v * 2 AS int) AS v FROM u")
    assert counts(world.sync(), "t")[0] == 2
    assert world.rows("t", "id", "v") == [(1, 10), (2, 12)]


@pytest.mark.parametrize(
    "statement",
    [
        "VACUUM FULL t", "ALTER TABLE t ADD COLUMN w int DEFAULT 7", "ALTER TABLE t ALTER v SET DEFAULT 4",
        "ALTER TABLE t ALTER v TYPE bigint", "ALTER TYPE kind ADD VALUE 'c'", "ALTER TABLE t ALTER v SET NOT NULL",
    ],
)  # fmt: skip
def test_a_statement_that_keeps_the_values_has_nothing_read_again(make_world: MakeWorld, statement: str) -> None:
    world = make_world("postgres", policy=preset("allow_all"), settings={"t": cursor("at")})
    world.run("CREATE TYPE kind AS ENUM ('a', 'b')", "CREATE TABLE t (id int PRIMARY KEY, at int, v int, k kind)")
    world.run("INSERT INTO t VALUES (1, 1, 5, 'a'), (2, 2, 6, 'b')")
    world.sync()
    world.run(statement, "INSERT INTO t VALUES (3, 3, 7, 'a')")
    assert counts(world.sync(), "t")[0] == 2, "from the last cursor value on"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("native", "new"),
    [("int", "bigint"), ("varchar(9)", "text"), ("numeric(9,2)", "numeric(12,2)")],
)
def test_what_is_written_as_before_is_not_read_again(make_world: MakeWorld, native: str, new: str) -> None:
    world = loaded(make_world, native, "'7'")
    world.run(f"ALTER TABLE t ALTER v TYPE {new}", "INSERT INTO t VALUES (2, 2, NULL)")
    assert counts(world.sync(), "t")[0] == 2, "from the last cursor value on"
    assert world.differing() == {}


def test_what_waits_is_read_as_the_accepted_type_writes_it(make_world: MakeWorld) -> None:
    world = loaded(make_world, "text", "'1.5'")
    world.policy = preset("approve")
    world.run("INSERT INTO t VALUES (2, 2, '7')")
    world.sync()
    world.run("ALTER TABLE t ALTER v TYPE numeric(9,2) USING v::numeric")
    world.sync()
    assert world.rows("t", "id", "v") == [(0, None), (1, "1.50"), (2, "7.00")]


def test_a_value_that_was_held_comes_once_its_type_is_let_in(make_world: MakeWorld) -> None:
    world = loaded(make_world, "int", "1")
    world.policy = preset("approve")
    world.run(
        "ALTER TABLE t ALTER v TYPE bigint", "INSERT INTO t VALUES (2, 2, 5000000000)", "INSERT INTO t VALUES (3, 3, 1)"
    )
    world.sync()
    assert world.rows("t", "id", "v") == [(0, None), (1, 1), (2, None), (3, 1)]
    world.answer("approved")
    world.sync()
    assert world.rows("t", "id", "v") == [(0, None), (1, 1), (2, 5000000000), (3, 1)]
