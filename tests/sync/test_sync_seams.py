"""Promises at the seams between parts: what two of them do to one table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from instep.errors import Blocked
from instep.schema.maintenance import BackfillLimits
from instep.schema.policy.policy import Rule
from instep.schema.selection.selection import Pattern, Selection
from instep.sync.loading.engine import LocalEngine
from instep.sync.operations import restore, set_cursor
from instep.sync.progress import SyncReport
from instep.sync.run import RunScope, sync
from instep.sync.schema_changes import declare_table_rename, undo
from sync_world import MakeWorld, World, cursor, preset

TABLE = "CREATE TABLE t (id int PRIMARY KEY, name varchar(20), at int NOT NULL)"
SETUP = (TABLE, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 2)")
SIZED = (
    "CREATE TABLE t (id int PRIMARY KEY, size int, at int NOT NULL)",
    "INSERT INTO t VALUES (1, 1, 1), (2, 2, 1), (3, 3, 2)",
)
OTHERS = "INSERT INTO t VALUES (1, 'x', 1), (9, 'z', 1), (3, 'y', 9)"
ADD = "ALTER TABLE t ADD COLUMN size int DEFAULT 7"
KINDS = pytest.mark.parametrize("kind", ["postgres", "sqlite"])


def begun(world: World, *rules: Rule, setup: tuple[str, ...] = SETUP, **modifiers: Any) -> World:
    """A table with a cursor, loaded once."""
    world.settings["t"] = cursor("at", deletes="soft")
    world.policy = preset("allow_all", *rules, **modifiers)
    world.run(*setup)
    assert world.sync().status == "done"
    return world


def fill(world: World, column: str) -> SyncReport:
    """What `instep backfill t --column COLUMN` does."""
    path = f"{world.case.schema}.t"
    world.store.backfills.request("shop", (world.case.schema, "t"), column=column)
    report: SyncReport = world.sync(tables=frozenset({path}), columns=(column,), kind="backfill")
    return report


@pytest.mark.sampled
@KINDS
@pytest.mark.parametrize("settled", [False, True], ids=["at once", "let go first"])
@pytest.mark.parametrize("backfill", ["none", "column"])
@pytest.mark.parametrize("history", [False, True], ids=["", "history"])
def test_a_column_that_comes_back_has_what_the_source_has(
    make_world: MakeWorld, kind: str, settled: bool, backfill: str, history: bool
) -> None:
    """Its old values are no NULLs, so that filling alone would leave them, and they are those of another column."""
    world = begun(make_world(kind), setup=SIZED, backfill=backfill)
    world.settings["t"] = cursor("at", deletes="soft", history=history)
    world.run("ALTER TABLE t DROP COLUMN size")
    if settled:
        world.settled()
    world.run(ADD)
    report = world.sync()
    assert world.differing() == {}
    if not history:
        assert world.rows("t", "id", "size") == [(1, 7), (2, 7), (3, 7)]
    if world.case.column_ids:
        assert any("comes back with old values" in note for note in report.notes)


@KINDS
def test_a_half_filled_column_comes_back(make_world: MakeWorld, kind: str) -> None:
    world = begun(make_world(kind), backfill="column")
    world.limits = BackfillLimits(max_bytes=1)
    world.run(ADD, "UPDATE t SET at = 5 WHERE id = 1")
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN size")
    world.settled()
    world.run("ALTER TABLE t ADD COLUMN size int DEFAULT 9")
    world.sync()
    assert world.rows("t", "id", "size") == [(1, 9), (2, 9), (3, 9)]


@KINDS
def test_an_undone_addition_with_a_waiting_fill_comes_back_whole(make_world: MakeWorld, kind: str) -> None:
    world = begun(make_world(kind), backfill="column")
    world.limits = BackfillLimits(max_bytes=1)
    world.run(ADD)
    world.sync()
    [review] = [r for r in world.store.reviews.find("shop", ("applied",)) if r.kind == "column.added"]
    undo.apply_undo(world.context, undo.prepare(world.context, [review]), ("*",))
    world.sync()
    assert world.store.backfills.waiting("shop") == []
    for rejected in world.store.reviews.find("shop", ("rejected",)):
        world.store.reviews.decide(rejected.id, "approved", "test")
    world.sync()
    assert world.rows("t", "id", "size") == [(1, 7), (2, 7), (3, 7)]


@KINDS
def test_another_table_of_a_kept_name_is_read_as_a_whole(make_world: MakeWorld, kind: str) -> None:
    """The old table's cursor says nothing about the rows of the new one."""
    world = begun(make_world(kind))
    world.run("DROP TABLE t")
    world.settled()
    world.run(TABLE, OTHERS)
    world.sync()
    assert world.rows("t", "id", "name") == [(1, "x"), (3, "y"), (9, "z")]


def test_a_table_that_was_missing_once_is_read_as_a_whole(make_world: MakeWorld) -> None:
    """Its removal was not believed yet, so that nothing is added when it is back."""
    world = begun(make_world("sqlite"))
    world.run("DROP TABLE t")
    world.sync()
    world.run(TABLE, OTHERS)
    world.sync()
    assert world.rows("t", "id", "name") == [(1, "x"), (3, "y"), (9, "z")]
    assert world.store.backfills.waiting("shop") == []


def test_a_column_that_was_missing_once_is_read_again(make_world: MakeWorld) -> None:
    world = begun(make_world("sqlite"))
    world.run("ALTER TABLE t RENAME COLUMN name TO away", "UPDATE t SET away = 'q', at = 9 WHERE id = 1")
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN away TO name")
    world.sync()
    assert world.rows("t", "id", "name") == [(1, "q"), (2, "b"), (3, "c")]


def test_rows_put_back_to_before_the_cursor_began(make_world: MakeWorld) -> None:
    """A cursor that begins at a value would leave out what came below it since."""
    world = make_world()
    world.run(*SETUP)
    world.sync()
    world.run("INSERT INTO t VALUES (4, 'd', 3)")
    world.sync()
    path = f"{world.case.schema}.t"
    set_cursor.carry_out(world.context, set_cursor.prepare(world.context, path, "at", "9"))
    world.run("INSERT INTO t VALUES (5, 'e', 9)")
    world.sync()
    points = restore.savepoints(world.context, path)[1]
    made = restore.prepare(world.context, path, points[-1].id)
    assert made.whole
    restore.restore(world.context, made, ("*",))
    world.sync()
    assert world.rows("t", "id") == [(1,), (2,), (3,), (4,), (5,)]


def test_a_fill_leaves_a_table_alone_that_was_changed_by_hand(make_world: MakeWorld) -> None:
    world = begun(make_world())
    world.run(ADD, "ALTER TABLE t ADD COLUMN more int DEFAULT 8")
    world.sync()
    with world.destination.lake.catalog.load_table(("shop", "t")).update_schema() as update:
        update.delete_column("size")
    assert "is not being synced" in fill(world, "more").tables[0].error
    assert "has no column size" in fill(world, "size").tables[0].error


@KINDS
def test_a_table_is_not_mapped_to_one_that_shows_what_was_hashed(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.policy = preset("allow_all", Rule(("table.added",), "review"))
    world.selection = Selection(hashed=(Pattern("*.t.name"),))
    world.run(*SETUP)
    world.sync()
    world.run(TABLE.replace(" t ", " u "), "INSERT INTO u SELECT * FROM t", "DROP TABLE t")
    world.settled()
    schema = world.case.schema
    with pytest.raises(Blocked, match="is hashed or switched off"):
        declare_table_rename.prepare(world.context, f"{schema}.t", f"{schema}.u")
    world.selection = Selection(hashed=(Pattern("*.name"),))
    declare_table_rename.carry_out(
        world.context, declare_table_rename.prepare(world.context, f"{schema}.t", f"{schema}.u")
    )
    before = world.rows("u")
    world.sync()
    assert world.rows("u") == before


@pytest.mark.sampled
@pytest.mark.parametrize("first", ["", "ALTER TABLE t RENAME COLUMN name TO nick"], ids=["table", "column, then table"])
def test_a_renamed_table_without_ids_shows_nothing_that_was_hashed(make_world: MakeWorld, first: str) -> None:
    world = make_world("sqlite")
    world.selection = Selection(hashed=(Pattern("*.t.name"),))
    world.run(*SETUP)
    world.sync()
    world.run(*filter(None, [first]))
    world.sync()
    world.run("ALTER TABLE t RENAME TO people")
    world.sync(again=1)
    assert world.tables() == {"t": "t~"}
    assert world.reviews("open") == {"table people added (3 columns)": "review"}
    world.answer("approved", "table.added")
    world.sync()
    assert "people" in world.tables()


def test_a_fill_by_a_hashed_key_and_of_a_hashed_column(make_world: MakeWorld) -> None:
    world = make_world()
    world.selection = Selection(hashed=(Pattern("*.t.id"), Pattern("*.t.size")))
    begun(world, backfill="column").run(ADD)
    world.sync()
    assert {len(str(size)) for (size,) in world.rows("t", "size")} == {64}


def test_a_fill_by_a_key_that_got_wider(make_world: MakeWorld) -> None:
    world = begun(make_world(), backfill="column")
    world.run("ALTER TABLE t ALTER COLUMN id TYPE bigint", ADD)
    world.sync()
    assert world.rows("t", "id", "size") == [(1, 7), (2, 7), (3, 7)]


def test_two_connections_never_write_one_table(make_world: MakeWorld) -> None:
    world = begun(make_world())
    other = sync(replace(world.context, name="other"), RunScope(), engine=LocalEngine())
    assert (other.status, world.rows("t", "id")) == ("failed", [(1,), (2,), (3,)])
    assert "connection shop writes shop.t" in other.tables[0].error
    assert world.sync().status == "done"
