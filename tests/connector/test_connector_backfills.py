"""Values that a connector's rows lack: nothing brings one column, so the whole table is sent again."""

from __future__ import annotations

from pathlib import Path

import pytest
from trial_world import Trial

from command_runs import run
from connector_world import CHECKPOINT, ConnectorWorld, MakeConnector, upserts
from instep.control.reviews import answer
from instep.schema.selection.selection import Pattern, Selection
from instep.sync.operations.restore import prepare, restore, savepoints
from instep.sync.schema_changes.backfill_plan import estimated
from sync_world import preset

KEY = [{"table": "t", "primary_key": ["id"]}]
TYPED = [{"table": "t", "primary_key": ["id"], "columns": {"id": "LONG", "a": "STRING", "b": "LONG"}}]
AGAIN = "t waits for all of its rows, so the connector sends everything again"
WHOLE = "its source sends whole rows, so the whole table is read again"


@pytest.fixture
def world(make_connector: MakeConnector) -> ConnectorWorld:
    world = make_connector(declared=KEY)
    world.play(*upserts("t", {"id": 1, "a": "x"}), CHECKPOINT)
    return world


def waiting(world: ConnectorWorld) -> list[tuple[str, str]]:
    return [(b.scope, b.column) for b in world.store.backfills.waiting("shop")]


@pytest.mark.sampled
@pytest.mark.parametrize("declared", [False, True])
def test_a_column_that_policy_fills_has_everything_sent_again(world: ConnectorWorld, declared: bool) -> None:
    world.policy = preset("allow_all", backfill="column")
    if declared:
        world.declared = TYPED
        assert any("its source sends whole rows, so a sync reads the whole table" in n for n in world.preview().partial)
    report = world.play(*upserts("t", {"id": 2, "b": 5}), CHECKPOINT)
    assert "t.b: its source sends whole rows, so a sync reads the whole table for it" in report.notes
    assert "t.b: rows that do not change keep NULL in it until `instep backfill t`" not in report.notes
    world.steps[0] = ["upsert", "t", {"id": 1, "a": "x", "b": 4}]
    report = world.play()
    assert {AGAIN, f"t: {WHOLE}"} <= set(report.notes)
    assert (world.rows("t", "id", "b"), waiting(world)) == ([(1, 4), (2, 5)], [])
    assert world.play(CHECKPOINT).notes == ()


def lacks(column: str, what: str) -> str:
    return f"t.{column}: rows that do not change keep {what} until `instep backfill t`"


def test_a_column_that_rows_lack_is_named_while_nothing_is_sent(world: ConnectorWorld) -> None:
    world.declared = TYPED
    notes = [world.play(CHECKPOINT).notes for _ in range(3)]
    assert notes == [(lacks("b", "NULL in it"),)] * 3
    world.steps[0] = ["upsert", "t", {"id": 1, "a": "x", "b": 4}]
    assert world.play(full=True).notes == ()
    assert (world.play(CHECKPOINT).notes, world.rows("t", "id", "b")) == ((), [(1, 4)])


def test_a_column_that_no_earlier_row_can_lack_is_not_named(make_connector: MakeConnector) -> None:
    """A first load that sends it late, and a table of which nothing was loaded so far."""
    world = make_connector(declared=[*KEY, {"table": "empty", "columns": {"id": "LONG"}}])
    first = world.play(*upserts("t", {"id": 1, "a": "x"}), CHECKPOINT, *upserts("t", {"id": 2, "b": 5}), CHECKPOINT)
    world.declared[1]["columns"]["n"] = "LONG"
    partial = world.preview().partial
    assert (first.notes, partial, world.play(CHECKPOINT).notes) == ((), (), ())
    assert lacks("c", "NULL in it") in world.play(*upserts("t", {"id": 3, "c": 6}), CHECKPOINT).notes


def came_back(
    make_connector: MakeConnector, backfill: str, policy: str = "allow_all", kind: str = "LONG"
) -> ConnectorWorld:
    """A table with a column that was removed and is declared again; its row was sent without it in between."""
    typed = [{**TYPED[0], "columns": {"id": "LONG", "a": "STRING", "b": kind}}]
    world = make_connector(declared=typed, policy=preset(policy, backfill=backfill))
    world.play(*upserts("t", {"id": 1, "a": "x", "b": 4}), CHECKPOINT)
    world.declared = [{"table": "t", "primary_key": ["id"], "columns": {"id": "LONG", "a": "STRING"}}]
    for a in ("y", "z"):
        world.play(*upserts("t", {"id": 1, "a": a}), CHECKPOINT)
        world.answer("approved", "column.removed")
    world.play(CHECKPOINT)
    assert next(c for c in world.accepted("t").columns if c.name == "b").retained
    world.declared = typed
    return world


def test_a_column_that_comes_back_is_told_with_what_rows_have_in_it(make_connector: MakeConnector) -> None:
    world, told = came_back(make_connector, "none"), lacks("b", "the values from before it was left out")
    assert told in world.preview().partial
    assert [world.play(CHECKPOINT).notes for _ in range(3)] == [(told,)] * 3
    assert world.rows("t", "id", "b") == [(1, 4)]
    assert world.play(full=True).notes == ()
    assert (world.play(CHECKPOINT).notes, world.rows("t", "id", "b")) == ((), [(1, None)])


def test_a_run_that_sends_everything_names_no_column_that_comes_back(make_connector: MakeConnector) -> None:
    world = came_back(make_connector, "none")
    assert (world.play(full=True).notes, world.rows("t", "id", "b")) == ((), [(1, None)])


def test_a_column_that_comes_back_is_told_once_its_kept_values_are_in_its_rows(make_connector: MakeConnector) -> None:
    world = came_back(make_connector, "none", "approve")
    world.play(*upserts("t", {"id": 2, "a": "x", "b": 7}), CHECKPOINT)
    world.answer("approved", "column.added")
    told = lacks("b", "the values from before it was left out")
    notes = [world.play(CHECKPOINT).notes for _ in range(3)]
    assert ([told in these for these in notes], world.rows("t", "id", "b")) == ([True] * 3, [(1, 4), (2, 7)])


def test_a_column_that_comes_back_hashed_is_sent_again_at_once(make_connector: MakeConnector) -> None:
    """Policy leaves old values where they are, but none of them in clear."""
    world = came_back(make_connector, "none", kind="STRING")
    world.selection = Selection(hashed=(Pattern("t.b"),))
    told = "t may differ until the next sync, which has all of its rows sent again: t.b is hashed"
    assert told in world.play(CHECKPOINT).notes
    assert AGAIN in world.play(CHECKPOINT).notes
    assert world.rows("t", "id", "b") == [(1, None)]


def test_a_column_that_comes_back_is_sent_again_where_policy_fills_it(make_connector: MakeConnector) -> None:
    world = came_back(make_connector, "column")
    assert "t.b: it comes back with old values, so a sync reads the whole table" in world.play(CHECKPOINT).notes
    assert AGAIN in world.play(CHECKPOINT).notes
    assert (world.play(CHECKPOINT).notes, world.rows("t", "id", "b")) == ((), [(1, None)])


def test_a_column_that_somebody_asks_for_is_sent_with_its_table(world: ConnectorWorld) -> None:
    world.steps[0] = ["upsert", "t", {"id": 1, "a": "y"}]
    found, waits = estimated(world.context, "t", ["a"])
    assert (found.columns, found.whole, found.why_not, waits) == ((), "its source sends whole rows", "", "")
    world.store.backfills.request("shop", ("", "t"), column="a", why="asked for")
    report = world.play(kind="backfill", tables=frozenset({"t"}), columns=("a",))
    assert report.notes == (f"t: {WHOLE}",)
    assert (world.rows("t"), waiting(world), world.state) == ([(1, "y")], [], {"at": 2})


def test_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = Trial(tmp_path / "parts", capsys)
    trial.write('op.upsert("part", {"id": 1, "name": "nut"})\nop.checkpoint({"at": 1})')
    trial.ok("debug")
    trial.write('op.upsert("part", {"id": 1, "name": "bolt"})\nop.checkpoint({"at": 1})')
    words = ("--project", str(trial.folder / "files"), "backfill", "part", "--column", "name")
    said = run(capsys, *words, "--dry-run")
    assert (said.code, "part: the whole table" in said.out, "sends whole rows" in said.out) == (0, True, True)
    assert run(capsys, *words, "--column", "nam").err.count("did you mean name?") == 1
    said = run(capsys, *words)
    assert (said.code, WHOLE in said.out + said.err) == (0, True)
    assert trial.rows("part") == [(1, "bolt")]


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["block_all", "approve"])
def test_what_was_kept_of_a_held_column_needs_nothing_sent_again(world: ConnectorWorld, name: str) -> None:
    world.policy = preset(name)
    world.play(*upserts("t", {"id": 2, "b": 6}), CHECKPOINT)
    if name == "block_all":
        world.switch_on("t", "b")
    else:
        world.answer("approved", "column.added")
    world.play(CHECKPOINT)
    assert (world.rows("t", "id", "b"), waiting(world)) == ([(1, None), (2, 6)], [])


def test_neither_does_a_rejected_one_unless_policy_fills_it(world: ConnectorWorld) -> None:
    world.policy = preset("approve")
    world.play(*upserts("t", {"id": 2, "b": 6}), CHECKPOINT)
    world.answer("rejected", "column.added")
    world.play(CHECKPOINT)
    [review] = world.store.reviews.find("shop", ("rejected",))
    answer(world.store, [review], "approved", "test")
    world.play(CHECKPOINT)
    assert (world.rows("t", "id", "b"), waiting(world)) == ([(1, None), (2, None)], [])


def test_a_table_that_is_put_back_is_sent_again(make_connector: MakeConnector) -> None:
    world = make_connector("iceberg", declared=KEY)
    world.play(*upserts("t", {"id": 1, "a": "x"}), CHECKPOINT)
    world.play(*upserts("t", {"id": 1, "a": "y"}, {"id": 2, "b": 1}), CHECKPOINT)
    before = world.rows("t")
    made = prepare(world.context, "t", savepoints(world.context, "t")[1][-1].id)
    assert made.lines[2:] == (
        "the next sync lets the source send everything again: it does not know which rows went back",
    )
    restore(world.context, made, ["t"])
    assert (world.rows("t"), waiting(world)) == ([(1, "x", None)], [("table", "")])
    assert AGAIN in world.play(CHECKPOINT).notes
    assert (world.rows("t"), waiting(world)) == (before, [])


@pytest.mark.sampled
@pytest.mark.parametrize("asks", ["hash", "backfill"])
def test_a_table_of_which_nothing_is_sent_is_asked_for_once(world: ConnectorWorld, asks: str) -> None:
    """The connector begins anew, has nothing of it any more, and is not begun anew for it again."""
    world.play(*upserts("u", {"id": 1}), CHECKPOINT)
    if asks == "hash":
        world.selection = Selection(hashed=(Pattern("t.a"),))
    else:
        world.store.backfills.request("shop", ("", "t"), why="asked for")
    world.steps = [*upserts("u", {"id": 2}), CHECKPOINT]
    notes = [note for _ in range(2) for note in world.play(*upserts("u", {"id": 3}), CHECKPOINT).notes]
    assert notes.count("t: the connector sent nothing of it, so its rows stay as they were") == 1
    assert (world.rows("t"), world.rows("u", "id"), waiting(world)) == ([(1, "x")], [(1,), (2,), (3,)], [])
    for _ in range(3):
        report = world.play(CHECKPOINT)
        assert (report.notes, waiting(world)) == ((), [])
