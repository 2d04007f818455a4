"""A table that waits for all of its rows does so until they are there, or later runs bring the rest."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import Any

import pytest

from connector_world import AGAIN, CHECKPOINT, At, ConnectorWorld, MakeConnector, Step, upserts, waiting
from instep import crash
from instep.destinations.duckdb.file import DatabaseFile
from instep.errors import Blocked
from instep.schema.selection.selection import Pattern, Selection
from instep.sources.connector.child import Child
from instep.sync.run import RunScope, sync

KEY = [{"table": "t", "primary_key": ["id"]}, {"table": "u", "primary_key": ["id"]}]
TWO = [{"table": "t", "primary_key": ["id", "part"], "columns": {"id": "LONG", "part": "LONG"}}, KEY[1]]


@pytest.fixture
def world(make_connector: MakeConnector) -> ConnectorWorld:
    world = make_connector(declared=KEY)
    world.play(*upserts("t", {"id": 1, "a": "x"}), *upserts("u", {"id": 1, "a": "x"}), CHECKPOINT)
    return world


@pytest.fixture
def approved(world: ConnectorWorld) -> ConnectorWorld:
    """`t` is to be built anew, and everything comes in two groups."""
    world.declared = TWO
    world.play(CHECKPOINT)
    world.answer("approved")
    world.play(CHECKPOINT)
    world.steps = steps(world)
    return world


def steps(world: ConnectorWorld) -> list[Step]:
    gate = ["wait", str(world.folder / "gate")]
    rows = upserts("t", {"id": 1, "part": 1, "a": "y"}, {"id": 1, "part": 2, "a": "y"})
    first, second = rows
    return [first, *upserts("u", {"id": 2, "a": "y"}), CHECKPOINT, gate, second, CHECKPOINT]


def run(world: ConnectorWorld, told: At) -> Any:
    return sync(world.context, RunScope(), told, world.rows_by)


def check_all_comes(world: ConnectorWorld) -> None:
    (world.folder / "gate").touch()
    assert AGAIN in world.play().notes
    assert (world.rows("t", "id", "part"), waiting(world)) == ([(1, 1), (1, 2)], [])
    assert world.rows("u", "id") == [(1,), (2,)]


def rename(world: ConnectorWorld, old: str, new: str) -> None:
    """Rename a table of the destination, also while a run of this process has the file open."""
    with DatabaseFile(world.folder / "warehouse.db").writing() as session:
        session.run(f'ALTER TABLE shop."{old}" RENAME TO "{new}"')


def test_another_table_of_its_group_fails(approved: ConnectorWorld) -> None:
    """Its own rows of that group are there, but no state is saved behind them."""
    gate = approved.folder / "gate"
    report = run(approved, At("committing", 1, lambda: rename(approved, "u", "away"), gate))
    assert approved.statuses(report) == {"t": "done", "u": "failed"}
    assert (approved.rows("t", "id", "part"), waiting(approved)) == ([(1, 1)], [("t", "table")])
    rename(approved, "away", "u")
    check_all_comes(approved)


@pytest.mark.sampled
@pytest.mark.parametrize("point", ["sync.staged", "connector.segment.committed", "connector.segment.saved.before"])
def test_a_run_that_ends_before_its_first_state(
    approved: ConnectorWorld, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setattr(crash, "_passed", Counter())
    monkeypatch.setenv(crash.VARIABLE, f"{point}=raise")
    with pytest.raises(crash.Crashed):
        approved.play()
    assert waiting(approved) == [("t", "table")]
    monkeypatch.delenv(crash.VARIABLE)
    check_all_comes(approved)


def test_a_run_that_fails_is_closed_by_one_thread_after_the_other(
    approved: ConnectorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What two close at once is closed twice, and the second time it may be a file of somebody else."""
    inside, seen, close = [0], [0], Child.close

    def slowly(child: Child) -> None:
        inside[0] += 1
        seen.append(inside[0])
        child.stop()
        time.sleep(0.5)
        close(child)
        inside[0] -= 1

    monkeypatch.setattr(crash, "_passed", Counter())
    monkeypatch.setenv(crash.VARIABLE, "sync.staged=raise")
    monkeypatch.setattr(Child, "close", slowly)
    with pytest.raises(crash.Crashed):
        approved.play()
    assert (max(seen), inside) == (1, [0])


def test_the_connection_is_paused_in_mid_run(world: ConnectorWorld) -> None:
    """What is not built anew has old rows until the stream ends."""
    world.store.backfills.request("shop", ("", "t"), why="for a test")
    wait = ["wait", str(world.folder / "gate")]
    world.steps = [*upserts("u", {"id": 1}), CHECKPOINT, wait, *upserts("t", {"id": 1, "a": "z"}), CHECKPOINT]
    pause = partial(world.store.pauses.pause, "shop", "for a test")
    with pytest.raises(Blocked, match="is paused"):
        run(world, At("waiting for the connector", 2, pause, world.folder / "gate"))
    assert waiting(world) == [("t", "table")]
    world.store.pauses.resume("shop", who="test")
    assert AGAIN in world.play().notes
    assert (world.rows("t", "id", "a"), waiting(world)) == ([(1, "z")], [])


def test_a_table_that_is_wanted_whole_as_a_run_begins(make_connector: MakeConnector) -> None:
    """Its first rows are not all: the run goes on from where the one before has ended."""
    world = make_connector(declared=KEY, selection=Selection(exclude_tables=(Pattern("u"),)))
    world.play(*upserts("u", {"id": 1}), *upserts("t", {"id": 1}), CHECKPOINT)
    world.selection = Selection()
    world.steps += [*upserts("u", {"id": 2}), CHECKPOINT]
    want = partial(world.store.backfills.request, "shop", ("", "u"), why="for a test")
    run(world, At("waiting for the connector", 1, want, world.folder / "gate"))
    assert (world.rows("u", "id"), waiting(world)) == ([(2,)], [("u", "table")])
    world.play(CHECKPOINT)
    assert (world.rows("u", "id"), waiting(world)) == ([(1,), (2,)], [])


def test_a_key_that_is_approved_while_its_table_waits_already(world: ConnectorWorld) -> None:
    """The old rows go: by the new key they would stay beside the new ones."""
    world.declared = TWO
    world.play(CHECKPOINT)
    world.store.backfills.request("shop", ("", "t"), why="for a test")
    world.answer("approved")
    world.steps = [*upserts("t", {"id": 1, "part": 7}), CHECKPOINT]
    world.play()
    world.play()
    assert (world.rows("t", "id", "part"), waiting(world)) == ([(1, 7)], [])
