"""Cursors of SQLite, whose columns hold what they are not declared as: no row is missed for the order of its texts."""

from __future__ import annotations

import pytest

from sync_world import MakeWorld, World, cursor

WAYS: list[tuple[str, str, tuple[str, ...]]] = [
    ("two separators", "DATETIME", ("'2024-01-02T00:00:01'", "'2024-01-02 05:00:00'")),
    ("offsets", "TIMESTAMPTZ", ("'2024-01-02 10:00:00+05:00'", "'2024-01-02 06:00:00+00:00'")),
    ("an offset and none", "DATETIME", ("'2024-01-02 10:00:00Z'", "'2024-01-02 09:00:00'")),
    ("days and times", "DATETIME", ("'2024-01-02 10:00:00'", "'2024-01-02'")),
    ("texts and numbers", "DATETIME", ("'2024-01-02 10:00:00'", "1704189600")),
    ("a word among numbers", "INTEGER", ("'n/a'", "200")),
    ("bytes among numbers", "INTEGER", ("x'ff'", "200")),
    ("infinity", "DECIMAL(10,2)", ("9e999", "200")),
]
ALIKE: list[tuple[str, str, tuple[str, ...]]] = [
    ("times", "DATETIME", ("'2024-01-02 10:00:00'", "'2024-01-02 10:00:00.5'", "'2024-01-03 00:00:00'")),
    ("times with T", "DATETIME", ("'2024-01-02T10:00:00'", "'2024-01-03T00:00:00'")),
    ("days", "DATE", ("'2024-01-02'", "'2024-01-03'")),
    ("numbers", "INTEGER", ("1", "2", "3")),
    ("seconds since 1970", "DATETIME", ("1704189600", "1704189601")),
]


def one_by_one(world: World, kind: str, values: tuple[str, ...]) -> list[str]:
    """Sync after each row; return what the last sync says."""
    world.settings["t"] = cursor("at")
    world.run(f"CREATE TABLE t (id INTEGER PRIMARY KEY, at {kind}, v INT)")
    notes: list[str] = []
    for number, value in enumerate(values):
        world.run(f"INSERT INTO t VALUES ({number}, {value}, {number})")  # noqa: S608
        report = world.sync()
        assert world.statuses(report) == {"t": "done"}
        notes = [note for note in report.notes if "the whole table is read" in note]
    assert len(world.rows("t")) == len(values)
    return notes


@pytest.mark.sampled
@pytest.mark.parametrize(("kind", "values"), [w[1:] for w in WAYS], ids=[w[0] for w in WAYS])
def test_rows_without_an_order_are_not_missed(make_world: MakeWorld, kind: str, values: tuple[str, ...]) -> None:
    world = make_world("sqlite")
    assert one_by_one(world, kind, values)
    assert world.differing() == {}


@pytest.mark.parametrize(("kind", "values"), [w[1:] for w in ALIKE], ids=[w[0] for w in ALIKE])
def test_rows_in_order_are_read_from_the_cursor_on(make_world: MakeWorld, kind: str, values: tuple[str, ...]) -> None:
    world = make_world("sqlite")
    assert one_by_one(world, kind, values) == []
    assert world.differing() == {}
