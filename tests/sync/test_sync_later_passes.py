"""A schema that moves while other tables of the same run are loaded: what a later pass decides is done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instep.schema.catalog.catalog import Catalog
from instep.sources.sqlite.source import SqliteSnapshot
from sync_world import MakeWorld, World, cursor, preset


def at_the_first_look(monkeypatch: pytest.MonkeyPatch, before: Callable[[], None], after: Callable[[], None]) -> None:
    """`before` happens while the first table is read, `after` once it was found unmoved."""
    real, looks = SqliteSnapshot.changed_tables, [0]

    def moved(snapshot: SqliteSnapshot, catalog: Catalog) -> frozenset[tuple[str, str]]:
        looks[0] += 1
        if looks[0] > 1:
            return real(snapshot, catalog)
        before()
        found = real(snapshot, catalog)
        after()
        return found

    monkeypatch.setattr(SqliteSnapshot, "changed_tables", moved)


def two_tables(world: World) -> World:
    world.run("PRAGMA journal_mode = wal")
    for name in ("a", "b"):
        world.settings[name] = cursor("at")
        world.run(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, at INT, v INT)")
        world.run(f"INSERT INTO {name} VALUES (1, 100, 1), (2, 200, 2)")  # noqa: S608
    return world


@pytest.mark.sampled
@pytest.mark.parametrize("backfill", ["table", "column"])
def test_a_backfill_that_is_asked_for_later_is_not_done_by_what_was_loaded_before(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, backfill: str
) -> None:
    world = two_tables(make_world("sqlite", policy=preset("allow_all", backfill=backfill)))
    at_the_first_look(
        monkeypatch,
        lambda: world.run("ALTER TABLE b ADD COLUMN n INT DEFAULT 7"),
        lambda: world.run("ALTER TABLE a ADD COLUMN n INT DEFAULT 7"),
    )
    assert world.statuses(world.sync()) == {"a": "done", "b": "done"}
    assert world.rows("a", "id", "n") == [(1, 7), (2, 7)]
    assert world.differing() == {}
    assert world.store.backfills.waiting("shop") == []


def test_a_table_that_a_later_pass_replaces_is_read_again(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = two_tables(make_world("sqlite", policy=preset("allow_all", backfill="table")))
    world.settings.clear()
    world.sync()
    at_the_first_look(
        monkeypatch,
        lambda: world.run("ALTER TABLE b ADD COLUMN n INT DEFAULT 7"),
        lambda: world.run(
            "DROP TABLE a", "CREATE TABLE a (id TEXT PRIMARY KEY, w INT)", "INSERT INTO a VALUES ('x', 1)"
        ),
    )
    world.sync()
    world.answer("approved")
    world.sync()
    assert world.differing() == {}


def test_what_a_fill_holds_is_in_the_report(make_world: MakeWorld) -> None:
    world = two_tables(make_world("sqlite", policy=preset("allow_all", backfill="column")))
    world.sync()
    world.run(
        "ALTER TABLE a ADD COLUMN n INT", "UPDATE a SET n = 'bad' WHERE id = 1", "UPDATE a SET n = 5 WHERE id = 2"
    )
    report = world.sync()
    assert {t.table[1]: t.invalid_values for t in report.tables} == {"a": 1, "b": 0}
    assert world.verify()["a"].held == 1
