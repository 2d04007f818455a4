# ruff: noqa: S608 - statements of this file
"""Source values tried on the accepted type while a new one is held, on real sources, in this process."""

from __future__ import annotations

import pytest

from instep.schema.selection.selection import Selection, patterns
from instep.sync.schema_changes.invalid_values import InvalidValues, invalid_values
from sync_world import MakeWorld, World, preset

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v int)"
DATED = "'1999-12-31'"
CASES: list[tuple[str, str, tuple[int, int]]] = [
    ("no rows", "", (0, 0)),
    ("nothing but NULL", "(1, NULL)", (0, 0)),
    ("none fits", f"(1, {DATED}), (2, NULL), (3, {DATED})", (2, 2)),
]


def retyped(make_world: MakeWorld, kind: str, rows: str, **options: object) -> World:
    """A whole number that becomes a date, which waits."""
    world = make_world(kind, policy=preset("allow_all"), **options)
    world.run(TABLE)
    world.evolve()
    world.run("ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN v date")
    if rows:
        world.run(f"INSERT INTO t VALUES {rows}")
    return world


@pytest.mark.parametrize(("rows", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_what_is_counted(make_world: MakeWorld, rows: str, expected: tuple[int, int]) -> None:
    world = retyped(make_world, "sqlite", rows)
    [found] = invalid_values(world.context, world.preview().detection, 10)
    assert (found.table, found.column, found.sampled, found.invalid_values, found.why_not) == (
        "main.t",
        "v",
        *expected,
        "",
    )
    assert "1999" not in str(found)


def test_no_more_than_asked_for(make_world: MakeWorld) -> None:
    world = retyped(make_world, "sqlite", ", ".join(f"({n}, {DATED})" for n in range(50)))
    detection = world.preview().detection
    assert [invalid_values(world.context, detection, n)[0].sampled for n in (1, 7, 100)] == [1, 7, 50]
    assert invalid_values(world.context, detection, 0) == ()
    assert invalid_values(world.context, detection, 9, only="another change") == ()


def test_a_hashed_column_is_not_read(make_world: MakeWorld) -> None:
    world = retyped(make_world, "sqlite", f"(1, {DATED})")
    detection = world.preview().detection
    world.selection = Selection(hashed=patterns(["*.t.v"]))
    assert invalid_values(world.context, detection, 9) == ()


def test_what_was_let_in_is_not_tried(make_world: MakeWorld) -> None:
    world = retyped(make_world, "sqlite", f"(1, {DATED})")
    world.preview()
    world.answer("approved", "column.retyped")
    assert invalid_values(world.context, world.preview().detection, 9) == ()


def test_what_has_moved_since_is_said(make_world: MakeWorld) -> None:
    world = retyped(make_world, "sqlite", f"(1, {DATED})")
    detection = world.preview().detection
    world.run("DROP TABLE t")
    [found] = invalid_values(world.context, detection, 9)
    assert found.sampled == 0
    assert "no source values were tried: " in str(found)


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_a_server_counts_too(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.run("CREATE TABLE t (id int PRIMARY KEY, v date)")
    world.evolve()
    change = "ALTER v TYPE int USING 0" if kind == "postgres" else "MODIFY v int"
    world.run(f"ALTER TABLE t {change}", "INSERT INTO t VALUES (1, 5), (2, NULL), (3, 20200101)")
    [found] = invalid_values(world.context, world.preview().detection, 10)
    assert (found.sampled, found.invalid_values) == (2, 2), "no whole number is a date, whatever its digits"


SAID = [
    (InvalidValues("k", "a.t", "v", "int64"), "a.t.v: the source has no values to try"),
    (
        InvalidValues("k", "a.t", "v", "int64", 1000),
        "a.t.v: all of 1,000 sampled source values fit int64, the accepted type",
    ),
    (
        InvalidValues("k", "a.t", "v", "int64", 9, 2),
        "a.t.v: 2 of 9 sampled source values do not fit int64, the accepted type",
    ),
    (InvalidValues("k", "a.t", "v", "int64", why_not="gone"), "a.t.v: no source values were tried: gone"),
]


@pytest.mark.parametrize(("found", "text"), SAID)
def test_what_is_said(found: InvalidValues, text: str) -> None:
    assert str(found).startswith(text)
