# ruff: noqa: E501 - a case reads best on few lines
"""Schema changes at the source: what is accepted, what the destination holds, what was recorded.

All cases of one source live in one database, so that two syncs show them all. A table is called as its case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from events.shows import shows
from sync_world import MakeWorld, World

Rows = list[tuple[Any, ...]]
IDS = ("postgres",)
TYPED = ("postgres", "mysql")
ALL = ("postgres", "mysql", "sqlite")
T = "CREATE TABLE {t} (id int PRIMARY KEY, a int, b int)"
ROW = "INSERT INTO {t} VALUES (1, 10, 20)"
NOT_NULL = {"column {t}.a may no longer be NULL": "apply"}


@dataclass(frozen=True)
class Ddl:
    """`{t}` is the table. `schema`, `rows` and `changes` are what is accepted, held and recorded (summary to action)
    afterwards; `status` is the table's in the last sync. `on`: the sources that see it so."""

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    schema: str
    rows: Rows
    changes: dict[str, str] = field(default_factory=dict)
    status: str = "done"
    on: tuple[str, ...] = ALL
    equal: bool = True

    @property
    def table(self) -> str:
        return f"t_{self.name}"


CASES = (
    Ddl("add", (T, ROW), ("ALTER TABLE {t} ADD c int DEFAULT 7", "INSERT INTO {t} VALUES (2, 1, 2, 3)"),
        "id int32!, a int32, b int32, c int32", [(1, 10, 20, 7), (2, 1, 2, 3)],
        {"column {t}.c added (int32)": "apply"}),
    Ddl("dropped", (T, ROW), ("ALTER TABLE {t} DROP COLUMN b", "INSERT INTO {t} VALUES (2, 1)", "UPDATE {t} SET a = 11 WHERE id = 1"),
        "id int32!, a int32, b int32~", [(1, 11, 20), (2, 1, None)], {"column {t}.b removed (int32)": "apply"}),
    Ddl("rename_id", (T, ROW), ("ALTER TABLE {t} RENAME COLUMN a TO z",), "id int32!, z int32, b int32", [(1, 10, 20)],
        {"column {t}.a renamed to z": "apply"}, on=IDS),
    Ddl("rename_name", (T, ROW), ("ALTER TABLE {t} RENAME COLUMN a TO z",), "id int32!, a int32~, z int32, b int32",
        [(1, 10, 10, 20)], {"column {t}.a removed (int32)": "apply", "column {t}.z added (int32)": "apply",
         "column {t}.a renamed to z?": "review"}, on=("mysql", "sqlite")),
    Ddl("swap", (T, ROW), ("ALTER TABLE {t} RENAME COLUMN a TO x", "ALTER TABLE {t} RENAME COLUMN b TO a", "ALTER TABLE {t} RENAME COLUMN x TO b"),
        "id int32!, b int32, a int32", [(1, 10, 20)],
        {"column {t}.a renamed to b": "apply", "column {t}.b renamed to a": "apply"}, on=IDS),
    Ddl("swap_name", (T, ROW), ("ALTER TABLE {t} RENAME COLUMN a TO x", "ALTER TABLE {t} RENAME COLUMN b TO a", "ALTER TABLE {t} RENAME COLUMN x TO b"),
        "id int32!, b int32, a int32", [(1, 10, 20)], {"columns of {t} reordered: id, b, a": "apply"}, on=("mysql", "sqlite")),
    Ddl("chain", (T, ROW), ("ALTER TABLE {t} RENAME COLUMN b TO c", "ALTER TABLE {t} RENAME COLUMN a TO b"),
        "id int32!, b int32, c int32", [(1, 10, 20)],
        {"column {t}.a renamed to b": "apply", "column {t}.b renamed to c": "apply"}, on=IDS),
    Ddl("cycle", ("CREATE TABLE {t} (id int PRIMARY KEY, a int, b int, c int)", "INSERT INTO {t} VALUES (1, 10, 20, 30)"),
        ("ALTER TABLE {t} RENAME COLUMN a TO x", "ALTER TABLE {t} RENAME COLUMN c TO a",
         "ALTER TABLE {t} RENAME COLUMN b TO c", "ALTER TABLE {t} RENAME COLUMN x TO b"),
        "id int32!, b int32, c int32, a int32", [(1, 10, 20, 30)],
        {"column {t}.a renamed to b": "apply", "column {t}.b renamed to c": "apply", "column {t}.c renamed to a": "apply"}, on=IDS),
    Ddl("key_rename", (T, ROW), ("ALTER TABLE {t} RENAME COLUMN id TO nr", "UPDATE {t} SET a = 5", "INSERT INTO {t} VALUES (2, 1, 1)"),
        "nr int32!, a int32, b int32", [(1, 5, 20), (2, 1, 1)], {"column {t}.id renamed to nr": "apply"}, on=IDS),
    Ddl("again", (T, ROW), ("ALTER TABLE {t} DROP COLUMN a", "ALTER TABLE {t} ADD a varchar(5)", "UPDATE {t} SET a = 'x'"),
        "id int32!, a__v1 int32~, b int32, a string(5)", [(1, 10, 20, "x")],
        {"column {t}.a removed (int32)": "apply", "column {t}.a added (string(5))": "apply"}, on=IDS),
    Ddl("widen", (T, ROW), ("ALTER TABLE {t} {alter} a {type} bigint", "INSERT INTO {t} VALUES (2, 9000000000, 1)"),
        "id int32!, a int64, b int32", [(1, 10, 20), (2, 9000000000, 1)],
        {"column {t}.a widened from int32 to int64": "apply"}, on=TYPED),
    Ddl("decimals", ("CREATE TABLE {t} (id int PRIMARY KEY, a decimal(5,2))", "INSERT INTO {t} VALUES (1, 1.25)"),
        ("ALTER TABLE {t} {alter} a {type} decimal(9,4)", "INSERT INTO {t} VALUES (2, 12345.6789)"),
        "id int32!, a decimal(9,4)", [], {"column {t}.a widened from decimal(5,2) to decimal(9,4)": "apply"}, on=TYPED),
    Ddl("narrow", ("CREATE TABLE {t} (id int PRIMARY KEY, a bigint)", "INSERT INTO {t} VALUES (1, 5)"),
        ("ALTER TABLE {t} {alter} a {type} int", "INSERT INTO {t} VALUES (2, 6)"),
        "id int32!, a int64", [(1, 5), (2, 6)], {"column {t}.a narrowed from int64 to int32": "ignore"}, on=TYPED),
    Ddl("retype", ("CREATE TABLE {t} (id int PRIMARY KEY, a varchar(9))", "INSERT INTO {t} VALUES (1, '5')"),
        ("ALTER TABLE {t} {alter} a {type} date {using}", "INSERT INTO {t} VALUES (2, '2024-02-03')"),
        "id int32!, a string(9)", [], {"column {t}.a retyped from string(9) to date": "review"}, on=IDS),
    Ddl("invalid_values", ("CREATE TABLE {t} (id int PRIMARY KEY, a int)", "INSERT INTO {t} VALUES (1, 5), (2, 6)"),
        ("ALTER TABLE {t} {alter} a {type} varchar(9)", "UPDATE {t} SET a = 'x' WHERE id = 2", "INSERT INTO {t} VALUES (3, '7'), (4, 'y')"),
        "id int32!, a int32", [(1, 5), (2, None), (3, 7), (4, None)],
        {"column {t}.a retyped from int32 to string(9)": "review"}, on=TYPED, equal=True),
    Ddl("to_text", ("CREATE TABLE {t} (id int PRIMARY KEY, a int)", "INSERT INTO {t} VALUES (1, 5), (2, 6)"),
        ("ALTER TABLE {t} {alter} a {type} text", "UPDATE {t} SET a = 'x' WHERE id = 2"),
        "id int32!, a string", [(1, "5"), (2, "x")], {"column {t}.a widened from int32 to string": "apply"}, on=IDS),
    Ddl("nullable", ("CREATE TABLE {t} (id int PRIMARY KEY, a int NOT NULL)", "INSERT INTO {t} VALUES (1, 5)"),
        ("ALTER TABLE {t} {nullable}", "INSERT INTO {t} VALUES (2, NULL)"),
        "id int32!, a int32", [(1, 5), (2, None)], {"column {t}.a may now be NULL": "apply"}, on=TYPED),
    Ddl("default_set", (T, ROW), ("ALTER TABLE {t} ALTER COLUMN a SET DEFAULT 5",), "id int32!, a int32, b int32", [(1, 10, 20)],
        {"default of column {t}.a set to 5": "apply"}, on=TYPED),
    Ddl("comments", (T, ROW), ("COMMENT ON COLUMN {t}.a IS 'it''s'", "COMMENT ON TABLE {t} IS 'all'"), "id int32!, a int32, b int32",
        [(1, 10, 20)], {"comment of column {t}.a set to it's": "apply", "comment of table {t} set to all": "apply"}, on=IDS),
    Ddl("reorder", (T, ROW), ("ALTER TABLE {t} MODIFY a int AFTER b",), "id int32!, b int32, a int32", [(1, 20, 10)],
        {"columns of {t} reordered: id, b, a": "apply"}, on=("mysql",)),
    Ddl("key_added", ("CREATE TABLE {t} (id int NOT NULL, a int)", "INSERT INTO {t} VALUES (1, 2)"),
        ("ALTER TABLE {t} ADD PRIMARY KEY (id)", "INSERT INTO {t} VALUES (2, 3)"), "id int32, a int32", [(1, 2)],
        {"primary key of {t} set to (id)": "pause_table"}, "paused", on=TYPED, equal=False),
    Ddl("key_changed", (T, ROW), ("ALTER TABLE {t} {dropkey}", "ALTER TABLE {t} ADD PRIMARY KEY (id, a)", "INSERT INTO {t} VALUES (1, 11, 1)"),
        "id int32!, a int32, b int32", [(1, 10, 20)], {"primary key of {t} changed from (id) to (id, a)": "pause_table",
         **NOT_NULL}, "paused",
        on=TYPED, equal=False),
    Ddl("key_removed", (T, ROW), ("ALTER TABLE {t} {dropkey}", "INSERT INTO {t} VALUES (1, 11, 1)"),
        "id int32!, a int32, b int32", [(1, 10, 20)], {"primary key of {t} removed (was (id))": "pause_table"}, "paused",
        on=TYPED, equal=False),
)  # fmt: skip


def sql(world: World, case: Ddl, statement: str) -> str:
    postgres = world.case.kind == "postgres"
    words = {
        "t": case.table,
        "alter": "ALTER COLUMN" if postgres else "MODIFY",
        "type": "TYPE" if postgres else "",
        "using": "USING '2024-01-01'" if postgres else "",
        "nullable": "ALTER COLUMN a DROP NOT NULL" if postgres else "MODIFY a int",
        "dropkey": f"DROP CONSTRAINT {case.table}_pkey" if postgres else "DROP PRIMARY KEY",
    }
    return statement.format(**words)


def mixed(world: World, text: str) -> str:
    """SQLite has one integer."""
    return text.replace("int32", "int64") if world.case.kind == "sqlite" else text


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ALL)
@shows(event=(41, 42, 44, 47))
def test_what_a_sync_makes_of_changes(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    cases = [c for c in CASES if kind in c.on]
    for case in cases:
        world.run(*(sql(world, case, s) for s in case.before))
    assert world.sync().status == "done"
    for case in cases:
        world.run(*(sql(world, case, s) for s in case.after))
    report = world.settled()
    found = {
        c.name: (world.schema(c.table), c.rows and world.rows(c.table), world.statuses(report)[c.table]) for c in cases
    }
    assert found == {c.name: (mixed(world, c.schema), c.rows, c.status) for c in cases}
    recorded = world.reviews("open", "approved", "rejected", "applied")
    recorded.pop(f"schema {world.case.schema} added", None)
    want = {mixed(world, s.replace("{t}", c.table)): action for c in cases for s, action in c.changes.items()}
    assert {s: a for s, a in recorded.items() if " added (" not in s or s.startswith("column")} == want
    assert set(world.differing()) == {c.table for c in cases if not c.equal}


def test_invalid_values_are_counted_held_and_told_in_their_row(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 5), (2, 6)")
    world.sync()
    world.run("ALTER TABLE t ALTER a TYPE varchar(9)", "UPDATE t SET a = 'x' WHERE id = 2")
    report = world.sync()
    assert [(t.updated, t.invalid_values) for t in report.tables] == [(1, 1)]
    assert '"field":"a"' in world.rows("t", "_instep_meta")[0][0] + str(world.rows("t", "_instep_meta")[1][0])
    assert world.reviews() == {"column t.a retyped from int32 to string(9)": "review"}
    [review] = world.answer("approved")
    world.sync()
    assert (world.schema("t"), world.rows("t")) == ("id int32!, a string(9)", [(1, "5"), (2, "x")])
    assert world.differing() == {}
    assert world.store.reviews.get(review.id).status == "applied"
