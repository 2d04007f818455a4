"""Backfill of just what is new: rows loaded before a column was let in get its values, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest

from instep.control.backfills import cancel
from instep.crash import VARIABLE, Crashed
from instep.destinations.iceberg.backfill import fill as iceberg_fill
from instep.errors import Blocked, InstepError
from instep.schema.maintenance import BackfillLimits
from instep.schema.policy.policy import Rule
from instep.schema.selection.selection import Selection, patterns
from instep.store.catalogs.backfills import BY_PERSON
from instep.sync.operations.restore import prepare, restore, savepoints
from instep.sync.progress import SyncReport
from instep.sync.schema_changes import declare_column_rename as mapping
from lake import SPARK
from quarantined import entries_of
from sync_world import MakeWorld, World, cursor, preset

SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, name varchar(20), at int NOT NULL)",
    "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 2)",
)
ADD = "ALTER TABLE t ADD COLUMN size int DEFAULT 7"
KINDS = ["postgres", "mysql", "sqlite"]


def begun(world: World, *rules: Rule, **modifiers: Any) -> World:
    """A table with a cursor, loaded once."""
    world.settings["t"] = cursor("at", deletes="ignore")
    world.policy = preset("allow_all", *rules, **{"backfill": "column", **modifiers})
    world.run(*SETUP)
    assert world.sync().status == "done"
    return world


def sizes(world: World) -> dict[int, Any]:
    return dict(world.rows("t", "id", "size"))  # type: ignore[arg-type]


def notes(report: SyncReport) -> str:
    return "\n".join(report.notes)


def waiting(world: World) -> list[tuple[str, str]]:
    return [(b.scope, b.column) for b in world.store.backfills.waiting("shop")]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_the_sync_fills_what_it_has_let_in(make_world: MakeWorld, kind: str) -> None:
    world = begun(make_world(kind))
    world.run(ADD, "UPDATE t SET size = 8 WHERE id = 2", "DELETE FROM t WHERE id = 1")
    before = world.store.cursors.of("shop")
    report = world.sync()
    assert report.status == "done", report
    assert sizes(world) == {1: None, 2: 8, 3: 7}
    assert {c.cursor for c in before.values()} == {c.cursor for c in world.store.cursors.of("shop").values()}
    assert waiting(world) == []
    assert "t: size filled in 1 row loaded before, 1 file rewritten" in notes(report)
    assert world.sync().notes == ()


@pytest.mark.parametrize("mark", [pytest.param(None, marks=SPARK)])
def test_on_spark(make_world: MakeWorld, mark: None) -> None:
    world = begun(make_world(engine="spark"))
    world.run(ADD, "ALTER TABLE t ADD COLUMN words text[]", "UPDATE t SET words = '{x,y}', size = 9 WHERE id = 1")
    assert world.sync().status == "done"
    assert world.rows("t", "id", "size", "words") == [(1, 9, ["x", "y"]), (2, 7, None), (3, 7, None)]


def test_a_newer_value_is_never_overwritten(make_world: MakeWorld) -> None:
    world = begun(make_world())
    world.run(ADD, "UPDATE t SET at = 3, size = NULL WHERE id = 1", "UPDATE t SET at = 3, size = 5 WHERE id = 2")
    world.sync()
    assert sizes(world) == {1: None, 2: 5, 3: 7}


def test_a_failure_leaves_the_load_and_the_wish(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = begun(make_world())
    world.run(ADD, "INSERT INTO t VALUES (4, 'd', 4, 4)")

    def fails(*_: object) -> None:
        raise InstepError("the disk is gone")

    monkeypatch.setattr(iceberg_fill.IcebergFills, "fill", fails)
    report = world.sync()
    assert report.status == "failed"
    assert "filling size: the disk is gone" in report.tables[0].error
    assert sizes(world) == {1: None, 2: None, 3: 7, 4: 4}
    monkeypatch.undo()
    assert world.sync().status == "done"
    assert sizes(world) == {1: 7, 2: 7, 3: 7, 4: 4}


@pytest.mark.sampled
@pytest.mark.parametrize("point", ["fill.before", "fill.read", "fill.rewritten", "fill.committed", "fill.done"])
def test_interrupted_it_goes_on(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """Between the attempts an upsert writes NULL over a row that was read."""
    world = begun(make_world())
    world.run("INSERT INTO t VALUES (4, 'd', 4)")
    world.sync()
    monkeypatch.setattr(iceberg_fill, "PART_ROWS", 1)
    monkeypatch.setattr(iceberg_fill, "PARTS_PER_CORE", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    world.run(ADD)
    monkeypatch.setenv(VARIABLE, f"{point}=raise")
    with pytest.raises(Crashed):
        world.sync()
    monkeypatch.delenv(VARIABLE)
    world.run("UPDATE t SET size = NULL, at = 9 WHERE id IN (1, 4)")
    assert world.sync().status == "done"
    filled = {"fill.committed": 1, "fill.done": 4}.get(point, 0)
    assert sizes(world) == {1: None, 2: 7, 3: 7, 4: None}, filled
    assert waiting(world) == []
    assert not list(world.folder.glob("lake/shop/*/data/*-values-*"))


def test_tables_without_a_key_are_read_whole(make_world: MakeWorld) -> None:
    world = make_world()
    world.policy = preset("allow_all", backfill="column")
    world.settings["log"] = cursor("at")
    world.run("CREATE TABLE log (at int, word varchar(9))", "INSERT INTO log VALUES (1, 'a'), (2, 'b')")
    world.sync()
    world.run("ALTER TABLE log ADD COLUMN more int DEFAULT 3")
    found = world.preview()
    assert any("it has no key" in text for text in found.partial)
    report = world.sync()
    assert "log: it has no key, so the whole table is read again" in notes(report).replace("public.", "")
    assert world.rows("log", "at", "more") == [(1, 3), (2, 3)]
    assert waiting(world) == []


def test_a_waiting_column_follows_renames(make_world: MakeWorld) -> None:
    world = begun(make_world())
    world.limits = BackfillLimits(max_bytes=1)
    world.run(ADD)
    assert "the budget is 1" in notes(world.sync())
    world.run("ALTER TABLE t RENAME COLUMN size TO weight", "ALTER TABLE t RENAME TO u")
    world.settings["u"] = world.settings["t"]
    assert world.sync().status == "done"
    assert [(b.table[1], b.column) for b in world.store.backfills.waiting("shop")] == [("u", "weight")]
    world.limits = BackfillLimits()
    assert world.sync().status == "done"
    assert world.rows("u", "id", "weight") == [(1, 7), (2, 7), (3, 7)]


def test_a_column_that_is_gone_is_not_waited_for(make_world: MakeWorld) -> None:
    world = begun(make_world())
    world.limits = BackfillLimits(max_bytes=1)
    world.run(ADD)
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN size")
    world.settled()
    assert waiting(world) == []


def test_a_person_is_not_held_up(make_world: MakeWorld) -> None:
    world = begun(make_world(), backfill="none")
    world.limits = BackfillLimits(max_bytes=1)
    world.run(ADD)
    world.sync()
    assert sizes(world) == {1: None, 2: None, 3: 7}
    world.store.backfills.request("shop", (world.case.schema, "t"), column="size")
    report = world.sync(tables=frozenset({f"{world.case.schema}.t"}), columns=("size",), kind="backfill")
    assert [(t.mode, t.read, t.updated) for t in report.tables] == [("column", 3, 2)]
    assert sizes(world) == {1: 7, 2: 7, 3: 7}


def test_minutes_are_a_budget_too(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = begun(make_world())
    world.run("INSERT INTO t VALUES (4, 'd', 4)")
    world.sync()
    monkeypatch.setattr(iceberg_fill, "PART_ROWS", 1)
    monkeypatch.setattr(iceberg_fill, "PARTS_PER_CORE", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    world.limits = BackfillLimits(max_minutes=1e-9)
    world.run(ADD)
    assert "so far: the next sync continues" in notes(world.sync())
    assert waiting(world) == [("column", "size")]
    assert world.sync().status == "done"
    assert waiting(world) == []
    assert sizes(world) == {1: 7, 2: 7, 3: 7, 4: 7}


def test_values_that_do_not_fit_are_held(make_world: MakeWorld) -> None:
    world = begun(make_world("sqlite"))
    world.run("ALTER TABLE t ADD COLUMN size int", "UPDATE t SET size = 'many' WHERE id = 1")
    world.run("UPDATE t SET size = 2 WHERE id = 2")
    report = world.sync()
    assert report.status == "done"
    found = world.rows("t", "id", "size", "_instep_meta")
    assert [r[:2] for r in found] == [(1, None), (2, 2), (3, None)]
    assert '"field":"size"' in found[0][2]
    assert [e.original for e in entries_of(world.context)] == ["many"]


def test_a_table_that_is_read_whole_needs_no_fill(make_world: MakeWorld) -> None:
    world = make_world()
    world.policy = preset("allow_all", backfill="column")
    world.run(*SETUP)
    world.sync()
    world.run(ADD)
    report = world.sync()
    assert "loaded before" not in notes(report)
    assert sizes(world) == {1: 7, 2: 7, 3: 7}
    assert waiting(world) == []


def test_cancelled_it_leaves_whole_files_and_goes_on(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = begun(make_world())
    world.run("INSERT INTO t VALUES (4, 'd', 4)", "INSERT INTO t VALUES (5, 'e', 5)")
    world.sync()
    monkeypatch.setattr(iceberg_fill, "PART_ROWS", 1)
    monkeypatch.setattr(iceberg_fill, "PARTS_PER_CORE", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    whole, calls = iceberg_fill.run_parts, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(*arguments)

    monkeypatch.setattr(iceberg_fill, "run_parts", interrupted)
    world.run(ADD)
    with pytest.raises(KeyboardInterrupt):
        world.sync()
    assert set(sizes(world)) == {1, 2, 3, 4, 5}
    assert not list(world.folder.glob("lake/shop/*/data/*-values-*"))
    assert waiting(world) == [("column", "size")]
    last = world.store.runs.latest("shop")
    assert last is not None
    assert last.status == "cancelled"
    assert world.sync().status == "done"
    assert sizes(world) == {1: 7, 2: 7, 3: 7, 4: 7, 5: 7}
    assert waiting(world) == []


def test_a_person_hears_what_was_not_filled(make_world: MakeWorld) -> None:
    world = begun(make_world(), backfill="none")
    world.run(ADD)
    world.sync()
    ref = (world.case.schema, "t")
    asked: dict[str, Any] = {"tables": frozenset({".".join(ref)}), "columns": ("size",), "kind": "backfill"}
    world.store.backfills.request("shop", ref, column="size")
    world.store.pauses.pause("shop", "for a reason", table=ref)
    report = world.sync(**asked)
    assert report.status == "failed"
    assert "size is not filled: the table is not being synced" in report.tables[0].error
    world.store.pauses.resume("shop", who="test", table=ref)
    world.store.backfills.request("shop", ref)
    with pytest.raises(Blocked, match="the whole table has to be read first"):
        world.sync(**asked)
    assert world.sync().status == "done"
    assert waiting(world) == []


def lacking(world: World) -> list[str]:
    """Columns that are on record as having no values in older rows."""
    return [c.name for columns in world.store.loaded.of("shop").values() for c in columns if c.partial]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_is_not_filled_stays_on_record_until_it_is(make_world: MakeWorld, kind: str) -> None:
    world = begun(make_world(kind), backfill="none")
    world.run(ADD, "UPDATE t SET at = 9 WHERE id = 2")
    world.sync()
    assert (sizes(world), lacking(world)) == ({1: None, 2: 7, 3: 7}, ["size"])
    world.run("ALTER TABLE t RENAME COLUMN size TO weight")
    world.policy = preset("allow_all", backfill="none")
    world.sync()
    world.sync()
    assert lacking(world) == ["weight"]
    world.store.backfills.request("shop", (world.case.schema, "t"), column="weight")
    report = world.sync(kind="backfill", tables=frozenset({f"{world.case.schema}.t"}), columns=("weight",))
    assert report.status == "done"
    assert dict(world.rows("t", "id", "weight")) == {1: 7, 2: 7, 3: 7}  # type: ignore[arg-type]
    assert lacking(world) == []
    world.sync()
    assert lacking(world) == []


@pytest.mark.sampled
@pytest.mark.parametrize("fills", ["the policy", "a whole read"])
def test_a_column_that_is_filled_is_not_on_record(make_world: MakeWorld, fills: str) -> None:
    world = begun(make_world("postgres"), backfill="column" if fills == "the policy" else "none")
    world.run(ADD)
    if fills == "a whole read":
        world.sync()
        assert lacking(world) == ["size"]
        world.sync(kind="backfill", full=True, tables=frozenset({"public.t"}))
    else:
        world.sync()
    assert (set(sizes(world).values()), lacking(world)) == ({7}, [])


ANOTHER: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {
    "dropped, then added": ("drop", ("ALTER TABLE t DROP COLUMN size",), (ADD,)),
    "dropped and added at once": ("drop", ("ALTER TABLE t DROP COLUMN size", ADD), ()),
    "renamed, then added": ("retain", ("ALTER TABLE t RENAME COLUMN size TO weight",), (ADD,)),
    "renamed and added at once": ("retain", ("ALTER TABLE t RENAME COLUMN size TO weight", ADD), ()),
}


@pytest.mark.sampled
@pytest.mark.parametrize(("removed", "first", "then"), list(ANOTHER.values()), ids=list(ANOTHER))
def test_another_column_of_a_name_that_was_filled(
    make_world: MakeWorld, removed: Any, first: tuple[str, ...], then: tuple[str, ...]
) -> None:
    """Its older rows lack values, whatever a backfill has brought for the column that had the name before."""
    world = begun(make_world(), removed=removed)
    world.run(ADD)
    world.sync()
    assert (set(sizes(world).values()), lacking(world)) == ({7}, [])
    world.policy = preset("allow_all", backfill="none", removed=removed)
    world.run(*first, "UPDATE t SET at = 8 WHERE id = 2")
    world.settled()
    if then:
        world.run(*then, "UPDATE t SET at = 9 WHERE id = 2")
        world.sync()
    assert (sizes(world), lacking(world)) == ({1: None, 2: 7, 3: None if then else 7}, ["size"])
    assert "t.size: rows that do not change keep NULL in it until" in notes(world.sync())


@pytest.mark.sampled
def test_a_filled_column_that_was_off(make_world: MakeWorld) -> None:
    """Rows that came while it was off lack its values, whatever was filled before."""
    world = begun(make_world())
    world.run(ADD)
    world.sync()
    world.policy = preset("allow_all", backfill="none")
    world.selection = Selection(exclude_columns=patterns(["*.size"]))
    world.run("INSERT INTO t VALUES (4, 'd', 8, 7), (5, 'e', 9, 7)")
    world.sync()
    world.selection = Selection()
    world.sync()
    assert (sizes(world), lacking(world)) == ({1: 7, 2: 7, 3: 7, 4: None, 5: 7}, ["size"])


def _by_policy(world: World) -> str:
    world.run(ADD)
    return "size"


def _by_person(world: World) -> str:
    world.policy = preset("allow_all", backfill="none")
    world.run(ADD)
    world.sync()
    world.store.backfills.request("shop", ("public", "t"), column="size", why=f"{BY_PERSON}ann")
    return "size"


def _by_mapping(world: World) -> str:
    world.policy = preset("allow_all", backfill="none")
    world.run(
        "ALTER TABLE t DROP COLUMN name",
        "ALTER TABLE t ADD COLUMN size varchar(20) DEFAULT 'z'",
        "INSERT INTO t VALUES (4, 3, 'y')",
    )
    world.sync()
    mapping.carry_out(world.context, mapping.prepare(world.context, "public.t.name", "public.t.size"))
    return "size"


def _by_restore(world: World) -> str:
    path, before = world.accepted("t").path, savepoints(world.context, "public.t")[1][0]
    world.run(ADD)
    world.sync()
    restore(world.context, prepare(world.context, path, before.id), ["*"])
    return "size"


def _by_restore_of_a_filled_column(world: World) -> str:
    world.policy = preset("allow_all", backfill="none")
    world.run(ADD)
    world.sync()
    before = savepoints(world.context, "public.t")[1][0]
    world.store.backfills.request("shop", ("public", "t"), column="size")
    world.sync()
    restore(world.context, prepare(world.context, "public.t", before.id), ["*"])
    return "size"


@pytest.mark.sampled
@pytest.mark.parametrize("asks", [_by_policy, _by_person, _by_mapping, _by_restore, _by_restore_of_a_filled_column])
def test_a_fill_that_is_cancelled_is_told_whoever_asked_for_it(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, asks: Any
) -> None:
    world = begun(make_world())
    column = asks(world)
    if asks is _by_policy:
        world.evolve()
    assert (column in {b.column for b in world.store.backfills.waiting("shop")}) is True
    cancelled = cancel(world.store, "shop", world.accepted("t"), (column,), "ann")
    assert [b.column for b in cancelled.backfills] == [column]
    report = world.sync()
    is_told = f"t.{column}: rows that do not change keep NULL in it until" in notes(report)
    assert is_told == ("t" in world.differing()) == (lacking(world) == [column])
    assert is_told == (asks is not _by_mapping), "a mapping asks for the whole table, too, which is not cancelled"
    world.store.backfills.request("shop", ("public", "t"), column=column)
    world.sync()
    assert (world.differing(), lacking(world)) == ({}, [])
