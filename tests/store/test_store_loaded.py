"""What the last loads had of each table comes out as it went in, and follows renames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, event
from store_world import Clock

from instep.schema.planning.projection import LoadedColumn, LoadedRules
from instep.store.engine.database import CHUNK
from instep.store.store import Store

A, B, C = ("s", "a"), ("s", "b"), ("s", "c")
ONE = (LoadedColumn("id", "1"), LoadedColumn("name", None, read=False, hashed=True))
TWO = (LoadedColumn("id"),)


def test_loaded_columns(any_store: Store) -> None:
    loaded = any_store.loaded
    assert loaded.of("c") == {}
    loaded.save("c", {A: ONE, B: TWO})
    loaded.save("c", {B: ONE})
    loaded.save("d", {A: TWO})
    assert (loaded.of("c"), loaded.of("d")) == ({A: ONE, B: ONE}, {A: TWO})


def test_renamed_tables(any_store: Store) -> None:
    loaded = any_store.loaded
    loaded.save("c", {A: ONE, B: TWO})
    loaded.move("c", {A: B, B: A})
    assert loaded.of("c") == {A: TWO, B: ONE}
    loaded.move("c", {A: C})
    assert loaded.of("c") == {B: ONE, C: TWO}
    loaded.move("c", {})
    assert loaded.of("c") == {B: ONE, C: TWO}


@pytest.fixture
def read(any_store: Store) -> Iterator[list[int]]:
    """The numbers of rows that the statements on the tables of this module have found."""
    counts: list[int] = []

    def count(connection: Connection, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT") and ("FROM loaded_columns" in statement or "FROM backfills" in statement):
            rows: Any = connection.connection.cursor()
            rows.execute(f"SELECT count(*) FROM ({statement}) AS counted", parameters)  # noqa: S608
            counts.append(rows.fetchone()[0])

    event.listen(any_store._db.engine, "after_cursor_execute", count)
    yield counts
    event.remove(any_store._db.engine, "after_cursor_execute", count)


def test_only_the_tables_at_hand_are_read(any_store: Store, read: list[int]) -> None:
    loaded = any_store.loaded
    many = {("s", f"t{number:04}"): ONE for number in range(2 * CHUNK + 1)}
    rules = {ref: LoadedRules(where=f"id > {ref[1][1:]}") for ref in many}
    loaded.save("c", many, rules)
    loaded.save("d", {A: TWO})
    read.clear()
    some = [("s", "t0007"), ("s", "t0500"), ("s", "none"), A]
    assert loaded.of("c", some) == dict.fromkeys(some[:2], ONE)
    assert loaded.filters("c", some) == {ref: rules[ref] for ref in some[:2]}
    assert (loaded.of("c", []), loaded.of("c", [A])) == ({}, {})
    assert sum(read) == 4
    read.clear()
    loaded.save("c", {some[0]: TWO, some[1]: TWO}, {some[0]: LoadedRules(where="new")})
    assert sum(read) == 1
    assert [loaded.filters("c", some)[ref].where for ref in some[:2]] == ["new", "id > 0500"]
    assert loaded.of("c", many) == {**many, some[0]: TWO, some[1]: TWO} == loaded.of("c")


def test_columns_that_backfills_have_filled(any_store: Store, read: list[int]) -> None:
    backfills = any_store.backfills
    asked = [
        (A, "x", "column"), (A, "y", "since"), (A, "", "table"), (A, "z", "extra"), (B, "x", "column"),
        (C, "w", "column"),
    ]  # fmt: skip
    for table, column, scope in asked:
        backfills.request("c", table, column=column, scope=scope)
    backfills.request("d", A, column="other")
    for connection in ("c", "d"):
        for one in backfills.waiting(connection):
            if one.table != C:
                backfills.done(one.number)
    read.clear()
    assert backfills.filled("c", [A, C]) == {A: {"x", "z"}}
    assert sum(read) == 2
    assert backfills.filled("c", []) == {}
    many = [("s", f"t{number}") for number in range(2 * CHUNK)]
    assert backfills.filled("c", [*many, A, B]) == {A: {"x", "z"}, B: {"x"}}


def test_what_was_filled_before_the_last_record_is_in_it(any_store: Store, clock: Clock) -> None:
    backfills, loaded = any_store.backfills, any_store.loaded
    for recorded in (True, False):
        backfills.request("c", A, column="x")
        [one] = backfills.waiting("c")
        backfills.done(one.number)
        assert backfills.filled("c", [A, B]) == {A: {"x"}}
        clock.forward(1)
        if recorded:
            loaded.save("d", {A: ONE})
            loaded.save("c", {B: ONE})
            assert backfills.filled("c", [A]) == {A: {"x"}}
            loaded.save("c", {A: ONE})
            assert backfills.filled("c", [A]) == {}


def test_done_backfills_follow_renames(any_store: Store) -> None:
    backfills = any_store.backfills
    for table, column in ((A, "x"), (A, "y"), (A, ""), (B, "x")):
        backfills.request("c", table, column=column)
    for one in backfills.waiting("c"):
        backfills.done(one.number)
    backfills.request("c", A, column="x")
    backfills.request("d", A, column="x")

    def done() -> list[tuple[Any, str]]:
        return [(b.table, b.column) for b in backfills.find("c", ("done",))]

    backfills.rename("c", {(A, "x"): "y", (A, "y"): "x", (B, "y"): "z"})
    assert done() == [(A, "y"), (A, "x"), (A, ""), (B, "x")]
    backfills.move("c", {A: B, B: A})
    assert done() == [(B, "y"), (B, "x"), (B, ""), (A, "x")]
    assert [(b.table, b.column) for name in "cd" for b in backfills.waiting(name)] == [(A, "x"), (A, "x")]


@pytest.mark.parametrize("number", [2, 40])
def test_done_backfills_are_renamed_by_one_statement(any_store: Store, number: int) -> None:
    backfills, names = any_store.backfills, [f"c{n}" for n in range(number)]
    for name in names:
        backfills.request("c", A, column=name)
    for one in backfills.waiting("c"):
        backfills.done(one.number)
    statements: list[str] = []
    listener = (any_store._db.engine, "after_cursor_execute", lambda *of: statements.append(of[2]))
    event.listen(*listener)
    try:
        backfills.rename("c", {(A, name): other for name, other in zip(names, names[1:] + names[:1], strict=True)})
    finally:
        event.remove(*listener)
    assert len([s for s in statements if s.startswith("UPDATE")]) == 1
    assert [b.column for b in backfills.find("c", ("done",))] == [*names[1:], names[0]]


def test_columns_that_lack_values(any_store: Store) -> None:
    loaded = any_store.loaded
    loaded.save("c", {A: (LoadedColumn("x"), LoadedColumn("y")), B: (LoadedColumn("x"),)})
    loaded.lack("c", A, ["x", "z"])
    assert loaded.incomplete("c") == [(A, "x")]
    loaded.fill("c", A, "x")
    assert loaded.incomplete("c") == []


def test_a_table_that_was_read_without_a_backfill(any_store: Store) -> None:
    backfills = any_store.backfills
    backfills.record_read("c", [], why="", run="r-1")
    backfills.record_read("c", [A, B], why="because", run="r-1")
    found = backfills.find("c")
    assert [(b.table, b.column, b.scope, b.status, b.run, b.why) for b in found] == [
        (A, "", "table", "done", "r-1", "because"), (B, "", "table", "done", "r-1", "because"),
    ]  # fmt: skip
    assert all(b.ended == b.requested_at for b in found)
    assert backfills.waiting("c") == []


def test_records_of_removed_columns_go(any_store: Store) -> None:
    loaded = any_store.loaded
    loaded.save("c", {A: (LoadedColumn("x"), LoadedColumn("y")), B: (LoadedColumn("x"),)})
    loaded.forget("c", {(A, "x"), (B, "y"), (C, "x")})
    assert loaded.of("c") == {A: (LoadedColumn("y"),), B: (LoadedColumn("x"),)}
