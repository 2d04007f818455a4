"""Values of a column that the source dropped, before anybody has decided what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest
from into_world import world_into

from instep.project.sections.tables import TableSettings
from instep.schema.planning.projection import DESELECTED
from instep.schema.policy.policy import Rule
from instep.schema.selection.selection import Selection
from sync_world import MakeWorld, World, cursor, preset

pytestmark = pytest.mark.drawn(1)

KEPT = [(1, 10), (2, 20)]


def dropped(make_world: MakeWorld, key: str, how: str, policy: str) -> World:
    world = make_world("sqlite", policy=preset(policy))
    world.settings["t"] = TableSettings(mode=how)  # type: ignore[arg-type]
    world.run(f"CREATE TABLE t (id INTEGER {key}, kept INTEGER)", "INSERT INTO t VALUES (1, 10), (2, 20)")
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN kept")
    return world


@pytest.mark.sampled
@pytest.mark.parametrize("policy", ["allow_all", "block_all"])
@pytest.mark.parametrize("again", [0, 2])
def test_a_table_without_a_key_waits(make_world: MakeWorld, policy: str, again: int) -> None:
    """Its rows are swapped as a whole, so that no value would be left to decide about."""
    world = dropped(make_world, "", "auto", policy)
    report = world.sync(again=again)
    assert world.statuses(report) == {"t": "failed"}
    assert "would lose the values of kept" in report.tables[0].error
    assert world.rows_at(("shop", "t"), "id", "kept") == KEPT
    world.sync()
    assert world.statuses(world.sync(drop_retained=True)) == {"t": "done"}
    assert [r[0] for r in world.rows_at(("shop", "t"))] == [1, 2]
    assert world.rows_at(("shop", "t")) != KEPT


def test_consent_to_lose_what_is_retained_is_no_decision(make_world: MakeWorld) -> None:
    """Under a policy that asks about a removal, its values stay until somebody answers."""
    world = dropped(make_world, "", "auto", "approve")
    world.policy = preset("approve", Rule(("column.removed",), "review"))
    world.sync(again=1)
    for _ in range(2):
        report = world.sync(drop_retained=True)
        assert world.statuses(report) == {"t": "failed"}
        assert "is not decided yet" in report.tables[0].error
        assert world.rows_at(("shop", "t"), "id", "kept") == KEPT
    world.answer("approved")
    world.sync()
    assert world.statuses(world.sync(drop_retained=True)) == {"t": "done"}


@pytest.mark.sampled
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("how", ["auto", "full_refresh"])
def test_a_table_with_a_key_keeps_them(make_world: MakeWorld, how: str, full: bool) -> None:
    world = dropped(make_world, "PRIMARY KEY", how, "approve")
    assert world.statuses(world.sync(full=full)) == {"t": "done"}
    assert world.rows_at(("shop", "t"), "id", "kept") == KEPT


@pytest.mark.sampled
@pytest.mark.parametrize("policy", ["allow_all", "approve"])
@pytest.mark.parametrize("into", ["iceberg", "delta", "duckdb", "postgres"])
def test_a_full_refresh_that_keeps_them_deletes_what_is_gone(
    make_world: MakeWorld, request: pytest.FixtureRequest, into: str, policy: str
) -> None:
    """The values that are kept make a merge of it, which has to take out rows as laying the table down anew would."""
    world = world_into(make_world, request, "sqlite", into)
    world.policy, world.settings["t"] = preset(policy), TableSettings(mode="full_refresh")
    world.run("CREATE TABLE t (id INTEGER PRIMARY KEY, kept INTEGER)", "INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)")
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN kept", "DELETE FROM t WHERE id = 3")
    world.sync()
    assert world.rows_at(("shop", "t"), "id", "kept") == KEPT
    world.sync()
    world.run("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (4)")
    world.sync()
    assert world.rows_at(("shop", "t"), "id", "kept") == [(2, 20), (4, None)]


def test_hashes_of_another_salt_are_made_anew(make_world: MakeWorld) -> None:
    from instep.schema.selection.selection import Pattern, Selection

    world = make_world("sqlite", selection=Selection(hashed=(Pattern("main.t.v"),)), settings={"t": cursor("u")})
    world.run("CREATE TABLE t (id INTEGER PRIMARY KEY, u INTEGER, v TEXT)", "INSERT INTO t VALUES (1, 1, 'a')")
    world.sync()
    world.run("INSERT INTO t VALUES (2, 2, 'a')")
    world.salt = b"pepper"
    world.sync()
    (first,), (second,) = world.rows("t", "v")
    assert first == second
    assert world.differing() == {}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("column", "settings"),
    [("v", TableSettings(history=True)), ("id", TableSettings(history=True)), ("id", cursor("u", deletes="ignore"))],
    ids=["a value with a history", "a key with a history", "a key that is never deleted"],
)
def test_another_salt_is_refused_where_rows_would_be_there_twice(
    make_world: MakeWorld, column: str, settings: TableSettings
) -> None:
    """As another choice of what is hashed is: versions would end though nothing has changed, keys would stand twice."""
    from instep.schema.selection.selection import Pattern, Selection

    world = make_world("sqlite", selection=Selection(hashed=(Pattern(f"main.t.{column}"),)), settings={"t": settings})
    world.run("CREATE TABLE t (id INTEGER PRIMARY KEY, u INTEGER, v TEXT)", "INSERT INTO t VALUES (1, 1, 'a')")
    world.sync()
    before = world.rows("t")
    salt, world.salt = world.salt, b"pepper"
    assert any("another salt" in note and "not synced" in note for note in world.preview().partial)
    report = world.sync()
    assert [(t.status, "take the salt back" in str(t.error)) for t in report.tables] == [("failed", True)]
    assert world.rows("t") == before
    world.salt = salt
    assert world.statuses(world.sync()) == {"t": "done"}
    assert world.rows("t") == before


def left_out(world: World, key: str, **settings: Any) -> World:
    """A loaded table one of whose columns is not selected any more."""
    world.settings["t"] = TableSettings(**settings)
    world.run(f"CREATE TABLE t (id INTEGER {key}, a TEXT, n INTEGER)", "INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2)")
    world.sync()
    world.selection = Selection(off=frozenset({"main.t.a"}))
    world.run("INSERT INTO t VALUES (3, 'z', 3)", "UPDATE t SET n = 9 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    return world


@pytest.mark.sampled
@pytest.mark.parametrize("into", ["iceberg", "delta", "duckdb", "postgres"])
@pytest.mark.parametrize("how", ["backfill", "full", "full_refresh"])
def test_a_column_that_is_left_out_keeps_its_values_by_key(
    make_world: MakeWorld, request: pytest.FixtureRequest, into: str, how: str
) -> None:
    settings = {"mode": how} if how == "full_refresh" else {"deletes": "hard"}
    world = left_out(world_into(make_world, request, "sqlite", into), "PRIMARY KEY", **settings)
    if how == "backfill":
        world.store.backfills.request("shop", ("main", "t"), why="asked for")
        world.sync(tables=frozenset(["main.t"]), kind="backfill")
    world.sync(full=how == "full")
    assert world.rows("t") == [(1, "x", 9), (3, None, 3)]


@pytest.mark.parametrize("mode", ["auto", "append"])
def test_without_a_key_its_values_go_with_a_note(make_world: MakeWorld, mode: str) -> None:
    world = left_out(make_world("sqlite"), "", mode=mode, cursor="id" if mode == "append" else "")
    assert world.preview().partial == ((f"main.t.a: {DESELECTED}",) if mode == "auto" else ())
    assert len(world.sync(full=True).notes) == 1
    assert world.rows("t") == [(1, None, 9), (3, None, 3)]
    assert world.preview().partial == world.sync(full=True).notes == (), "there is nothing more to lose"
    world.selection = Selection()
    world.sync(full=True)
    assert world.rows("t") == [(1, "x", 9), (3, "z", 3)]


@pytest.mark.sampled
@pytest.mark.parametrize("key", ["", "PRIMARY KEY"])
def test_another_column_of_the_name_is_no_decision(make_world: MakeWorld, key: str) -> None:
    """The source has a column of that name again, and it is another one."""
    world = make_world("postgres", policy=preset("approve"))
    world.settings["t"] = TableSettings(mode="full_refresh")
    world.run(f"CREATE TABLE t (id int {key}, kept int)", "INSERT INTO t VALUES (1, 10), (2, 20)")
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN kept", "ALTER TABLE t ADD COLUMN kept date")
    assert world.statuses(world.sync()) == {"t": "done" if key else "failed"}
    assert world.rows_at(("shop", "t"), "id", "kept") == KEPT
