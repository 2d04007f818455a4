# ruff: noqa: S608 - the names stand in this file
"""Rows that come, or come back, below the cursor: their keys are seen, and the values that they have now are read."""

from __future__ import annotations

from typing import Any

import pytest
from into_world import world_into

from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Catalog
from instep.schema.selection.selection import Pattern, Selection
from instep.sources.sqlite.source import SqliteSnapshot
from sync_world import MakeWorld, World, cursor

BACK = "so the whole table is read again"
SETTINGS = {
    "soft": cursor("u"),
    "hard": cursor("u", deletes="hard"),
    "history": TableSettings(history=True, cursor="u"),
}


def tables(world: World) -> None:
    for name, said in SETTINGS.items():
        world.settings[name] = said
        world.run(
            f"CREATE TABLE {name} (id int PRIMARY KEY, u int NOT NULL, v int)",
            f"INSERT INTO {name} VALUES (1, 1, 1), (2, 2, 2), (3, 30, 3)",
        )
    world.sync()


def current(world: World) -> dict[str, list[tuple[Any, ...]]]:
    flag = "_instep_current"
    read = {n: world.destination.write.read(("shop", n)).read_all().to_pylist() for n in SETTINGS}
    return {
        n: sorted((r["id"], r["u"], r["v"]) for r in rows if not r.get("_instep_deleted") and r.get(flag, True))
        for n, rows in read.items()
    }


CASES = [("sqlite", d) for d in ("delta", "duckdb", "iceberg", "postgres")] + [
    (k, "duckdb") for k in ("postgres", "mysql")
]


@pytest.mark.sampled
@pytest.mark.parametrize(("kind", "destination"), CASES)
def test_what_is_below_the_cursor_is_read_once_its_key_is_seen(
    make_world: MakeWorld, request: pytest.FixtureRequest, kind: str, destination: str
) -> None:
    world = world_into(make_world, request, kind, destination)
    tables(world)
    for name in SETTINGS:
        world.run(f"DELETE FROM {name} WHERE id = 2")
    world.sync()
    for name in SETTINGS:  # one row is back with another value, one is new, both below what was read
        world.run(f"INSERT INTO {name} VALUES (2, 3, 22), (9, 4, 9)")
    report = world.sync()
    assert {t.table[1]: t.status for t in report.tables} == dict.fromkeys(SETTINGS, "done")
    assert sum(BACK in note for note in report.notes) == len(SETTINGS)
    assert current(world) == {name: [(1, 1, 1), (2, 3, 22), (3, 30, 3), (9, 4, 9)] for name in SETTINGS}
    assert world.differing() == {}
    assert world.store.backfills.waiting("shop") == []
    for name in SETTINGS:
        world.run(f"UPDATE {name} SET v = 33 WHERE id = 3")  # else the table may be proven unchanged
    again = world.sync()
    assert [t.read for t in again.tables] == [1] * len(SETTINGS), "the row at the cursor only"
    assert not any(BACK in note for note in again.notes)


def test_a_key_that_is_spelled_otherwise_loses_no_row(make_world: MakeWorld) -> None:
    world = make_world(settings={"t": cursor("u")})
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, u int NOT NULL)",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 50) AS i",
    )
    world.sync()
    world.run("ALTER TABLE t ALTER id TYPE text USING lpad(id::text, 4, '0')")
    world.sync()
    world.answer("approved")
    world.sync()
    assert len(world.rows("t")) == 50
    assert world.differing() == {}


def test_a_log_tells_itself_what_is_back(make_world: MakeWorld) -> None:
    """Rows of the whole table are read once, at first."""
    world = make_world("sqlite", settings={"t": TableSettings(cursor="u", mode="append")})
    world.run("CREATE TABLE t (id INTEGER, u INTEGER)", "INSERT INTO t VALUES (1, 5)")
    world.sync()
    world.run("INSERT INTO t VALUES (2, 1)")
    report = world.sync()
    assert not any(BACK in note for note in report.notes), "an appended table has no keys to miss"


def test_a_whole_read_that_never_comes_is_no_success(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first pass has read of the table is not what the run has to tell."""
    world = make_world("sqlite", settings={"t": cursor("u")})
    world.run("CREATE TABLE t (id INTEGER PRIMARY KEY, u INTEGER NOT NULL)", "INSERT INTO t VALUES (1, 1), (2, 9)")
    world.sync()
    world.run("INSERT INTO t VALUES (3, 5)")
    looks, plain = [0], SqliteSnapshot.changed_tables

    def moved(snapshot: SqliteSnapshot, catalog: Catalog) -> frozenset[tuple[str, str]]:
        looks[0] += 1
        return plain(snapshot, catalog) if looks[0] == 1 else frozenset(t.ref for t in catalog.tables)

    with monkeypatch.context() as patch:
        patch.setattr(SqliteSnapshot, "changed_tables", moved)
        report = world.sync()
    [result] = report.tables
    assert (result.status, "its schema changed" in str(result.error)) == ("failed", True)
    assert world.differing() != {}
    assert world.statuses(world.sync()) == {"t": "done"}
    assert world.differing() == {}


def test_what_another_table_is_read_again_for_asks_for_nothing_twice(make_world: MakeWorld) -> None:
    world = make_world("sqlite", selection=Selection(hashed=(Pattern("main.w.v"),)))
    for name in ("t", "w"):
        world.settings[name] = cursor("u")
        world.run(
            f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, u INTEGER NOT NULL, v TEXT)",
            f"INSERT INTO {name} VALUES (1, 1, 'a'), (2, 9, 'b')",
        )
    world.sync()
    world.run("INSERT INTO t VALUES (3, 5, 'c')")
    world.salt = b"pepper"
    assert world.statuses(world.sync()) == {"t": "done", "w": "done"}
    assert world.store.backfills.waiting("shop") == []
    assert world.differing() == {}
