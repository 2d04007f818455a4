"""Applied plans on record: ids, steps with what became of them, undo by plan, what a dead run left. No JVM."""

from __future__ import annotations

from typing import Any

import pytest

from instep import crash
from instep.crash import Crashed
from instep.destinations.iceberg.destination import IcebergSchema
from instep.errors import DestinationError, InstepError
from instep.sync import journal
from instep.sync.schema_changes.undo import apply_undo, find, prepare
from sync_world import World

MADE = (
    "CREATE TABLE a (id int PRIMARY KEY, x int)",
    "CREATE TABLE b (id int PRIMARY KEY, y int)",
)
MOVED = ("ALTER TABLE a RENAME x TO z", "ALTER TABLE b ADD note text")


def story(world: World) -> list[tuple[str, list[tuple[str, str]]]]:
    """Each plan's status with its steps, oldest first."""
    store = world.store
    plans = reversed(store.plans.history("shop"))
    return [(p.status, [(s.text.replace("shop.", ""), s.status) for s in store.steps.of(p.id)]) for p in plans]


def latest(world: World) -> Any:
    return world.store.plans.history("shop", 1)[0]


@pytest.fixture
def made(world: World) -> World:
    world.run(*MADE)
    world.evolve()
    world.run(*MOVED)
    return world


RENAME, NOTE = "column a.x renamed to z", "column b.note added (string)"


def test_a_plan_is_on_record_with_its_steps(made: World) -> None:
    found = made.preview()
    version = made.evolve(found)
    assert story(made)[1:] == [("done", [(RENAME, "done"), (NOTE, "done")])]
    stored = latest(made)
    assert (stored.version, stored.who, len(stored.changes)) == (version, "test", 2)
    assert stored.id == found.id
    assert made.store.runs.get(stored.run).kind == "apply"


def test_the_same_plan_has_the_same_id_until_something_moves(made: World) -> None:
    first = made.preview().id
    assert made.preview().id == first
    made.run("ALTER TABLE b ADD more text")
    assert made.preview().id != first


def test_what_does_nothing_leaves_no_record(made: World) -> None:
    made.evolve()
    before = story(made)
    made.evolve()
    assert story(made) == before


def test_a_plan_is_undone_as_a_whole(made: World) -> None:
    made.evolve()
    plan = latest(made)
    back = prepare(made.context, find(made.context, plan.id))
    apply_undo(made.context, back)
    assert made.schema("a") == "id int32!, x int32"
    assert story(made)[-1] == ("done", [("column a.z renamed to x", "done")])
    with pytest.raises(InstepError, match=r"has applied no change \(done\)"):
        find(made.context, latest(made).id)


POINTS = [
    ("nothing was begun", "journal.opened", [(RENAME, "skipped"), (NOTE, "skipped")]),
    ("a step was begun", "journal.started", [(RENAME, "skipped"), (NOTE, "skipped")]),
    ("a step was committed", "apply.table.after", [(RENAME, "done"), (NOTE, "skipped")]),
    ("the second was begun", "journal.started@2", [(RENAME, "done"), (NOTE, "skipped")]),
    ("both were committed", "apply.table.after@2", [(RENAME, "done"), (NOTE, "done")]),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("point", "steps"), [case[1:] for case in POINTS], ids=[case[0] for case in POINTS])
def test_the_next_run_says_what_became_of_each_step(
    made: World, monkeypatch: pytest.MonkeyPatch, point: str, steps: list[tuple[str, str]]
) -> None:
    crash._passed.clear()
    monkeypatch.setenv(crash.VARIABLE, f"{point}=raise")
    with pytest.raises(Crashed):
        made.evolve()
    monkeypatch.delenv(crash.VARIABLE)
    assert latest(made).status == "running"
    dead = latest(made).id
    made.evolve()
    assert story(made)[1] == ("interrupted", steps)
    status, again = story(made)[2]
    assert (status, [text for text, how in steps if how == "skipped"]) == ("done", [text for text, _ in again])
    assert len(latest(made).changes) == 2
    with pytest.raises(InstepError, match="has applied no change") as caught:
        find(made.context, dead)
    assert latest(made).id in caught.value.hint


def test_a_step_that_fails_is_told_with_its_reason(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = IcebergSchema.execute

    def full(self: Any, ref: Any, *rest: Any) -> None:
        if ref[1] == "b":
            raise DestinationError("the disk is full")
        real(self, ref, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(IcebergSchema, "execute", full)
        with pytest.raises(DestinationError, match="the disk is full"):
            made.evolve()
    assert story(made)[-1] == ("failed", [(RENAME, "done"), (NOTE, "failed")])
    assert latest(made).error == "the disk is full"
    made.evolve()
    assert story(made)[-1] == ("done", [(NOTE, "done")])


def test_rows_that_are_written_again_are_counted(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)")
    world.evolve()
    world.run("ALTER TABLE t ALTER a TYPE text")
    world.preview()
    world.answer("approved")
    world.evolve()
    (step,) = world.store.steps.of(latest(world).id)
    assert (step.kind, step.rows, step.status) == ("column.rewritten", 0, "done")


NEW = tuple(f"CREATE TABLE n{number} (id int PRIMARY KEY)" for number in range(4))


def test_of_new_tables_that_were_begun_together_only_one_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = IcebergSchema.execute

    def full(self: Any, ref: Any, *rest: Any) -> None:
        if ref[1] == "n1":
            assert [s.status for s in world.store.steps.of(latest(world).id)] == ["running"] * 3 + ["planned"]
            raise DestinationError("the disk is full")
        real(self, ref, *rest)

    monkeypatch.setattr(journal, "NEW_TABLES_AT_ONCE", 3)
    world.run(*NEW)
    with monkeypatch.context() as patched:
        patched.setattr(IcebergSchema, "execute", full)
        with pytest.raises(DestinationError, match="the disk is full"):
            world.evolve()
    assert [status for _, status in story(world)[-1][1]] == ["done", "failed", "skipped", "skipped"]
    world.evolve()
    assert [status for _, status in story(world)[-1][1]] == ["done"] * 3


@pytest.mark.parametrize(("point", "done"), [("journal.started@2", 1), ("apply.table.after@2", 2)])
def test_of_new_tables_that_were_begun_together_those_that_are_there_are_done(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str, done: int
) -> None:
    world.run(*NEW)
    crash._passed.clear()
    monkeypatch.setenv(crash.VARIABLE, f"{point}=raise")
    with pytest.raises(Crashed):
        world.evolve()
    monkeypatch.delenv(crash.VARIABLE)
    world.evolve()
    assert [status for _, status in story(world)[0][1]] == ["done"] * done + ["skipped"] * (4 - done)
    assert [status for _, status in story(world)[1][1]] == ["done"] * (4 - done)
