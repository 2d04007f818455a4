"""A process that is killed behind the first commit of a table, before anything of it is on record."""

from __future__ import annotations

from typing import Any

import pytest
from into_world import world_into

from instep.crash import Crashed
from instep.project.sections.tables import TableSettings
from instep.schema.policy.policy import Rule
from instep.schema.selection.selection import Pattern, Selection
from sync_world import MakeWorld, World, cursor, preset

MODES: dict[str, TableSettings] = {
    "cursor": cursor("u"),
    "cursor, nothing deleted": cursor("u", deletes="ignore"),
    "append": TableSettings(mode="append", cursor="u"),
}


def sync_and_die(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as armed:
        armed.setenv("INSTEP_CRASH", "sync.done.before=raise")
        with pytest.raises(Crashed):
            world.sync()


def killed(world: World, monkeypatch: pytest.MonkeyPatch, **how: Any) -> None:
    """A table with two rows whose first sync ends behind its commit."""
    world.settings["t"] = MODES["cursor"].model_copy(update=how)
    world.run("CREATE TABLE t (id int PRIMARY KEY, u int NOT NULL, v varchar(9))")
    world.run("INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')")
    sync_and_die(world, monkeypatch)
    assert world.rows_at(("shop", "t"), "id") == [(1,), (2,)]


CASES = [("sqlite", d) for d in ("delta", "duckdb", "iceberg", "postgres")] + [
    (k, "duckdb") for k in ("postgres", "mysql")
]


@pytest.fixture(params=CASES, ids=["-".join(case) for case in CASES])
def world(make_world: MakeWorld, request: pytest.FixtureRequest) -> World:
    return world_into(make_world, request, *request.param)


def test_a_column_that_is_hashed_then_is_in_clear_nowhere(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(world, monkeypatch)
    world.selection = Selection(hashed=(Pattern(f"{world.case.schema}.t.v"),))
    world.run("INSERT INTO t VALUES (3, 3, 'c')")
    report = world.sync()
    assert any("not on record, so the whole table is read" in note for note in report.notes)
    assert [len(v) for (v,) in world.rows("t", "v")] == [64] * 3
    assert world.sync().notes == ()
    assert world.differing() == {}


@pytest.mark.parametrize("mode", MODES)
def test_a_filter_that_ends_then_brings_all_rows(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    world = make_world("sqlite")
    key = "" if mode == "append" else "PRIMARY KEY"
    world.settings["t"] = MODES[mode].model_copy(update={"filter": "v = 'a'"})
    world.run(f"CREATE TABLE t (id int {key}, u int NOT NULL, v text)")
    world.run("INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'a')")
    sync_and_die(world, monkeypatch)
    world.settings["t"] = MODES[mode]
    world.sync()
    assert world.rows("t", "id") == [(1,), (2,), (3,)]


def test_a_column_that_was_held_meanwhile_has_all_of_its_values(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.policy = preset("allow_all", Rule(("column.added",), "review"))
    killed(world, monkeypatch)
    world.run("ALTER TABLE t ADD COLUMN c varchar(9)")
    world.run("INSERT INTO t VALUES (3, 3, 'c', 'C3'), (4, 4, 'd', 'C4')")
    world.sync()
    world.run("INSERT INTO t VALUES (5, 5, 'e', 'C5')")
    world.sync()
    world.answer("approved", "column.added")
    world.sync()
    assert world.rows("t", "id", "c") == [(1, None), (2, None), (3, "C3"), (4, "C4"), (5, "C5")]
    assert world.differing() == {}
