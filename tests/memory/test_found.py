"""What the stateful test has found, each as the shortest way to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from events.shows import shows
from instep.errors import Conflict
from instep.events import ChangeDetected
from instep.schema.catalog.catalog import Column
from instep.schema.catalog.types import parse
from instep.schema.policy.policy import Policy
from instep.sync.detection.detect import detect_if_changed, record
from instep.sync.operations import set_key
from instep.sync.schema_changes.undo import apply_undo, find, prepare
from memory.database import MemoryDatabase
from memory.held import BY_HAND
from memory.promises import check_blocked
from memory.world import NAME, World

RENAMED = ("column.renamed", "column.removed")
INT, TEXT = parse("int32"), parse("string")


@pytest.fixture(params=[True, False], ids=["ids", "names"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """`t` has a key, `k` has none; both are loaded."""
    made = World(ids=request.param)
    made.database.create("t", Column("id", INT, key=1), Column("a", TEXT))
    made.database.create("k", Column("a", INT), Column("b", TEXT))
    made.database.insert("t", {"id": 1, "a": "x"})
    made.database.insert("k", {"a": 1, "b": "x"})
    made.sync()
    yield made
    made.close()


@shows(event=70)
def test_two_detections_at_once_tell_a_change_once(world: World) -> None:
    world.database.add_column("t", Column("c", INT))
    first, second = detect_if_changed(world.context), detect_if_changed(world.context)
    record(world.context, first)
    record(world.context, second)
    log = world.store.events.after(0, connection=NAME, types=(ChangeDetected.type,))
    assert set(Counter(e.data["change"] for e in log).values()) == {1}


def test_what_is_let_go_leaves_the_destination_too(world: World) -> None:
    world.database.drop_column("k", "a")
    for drop_retained in (False, False, True):  # names prove a removal the second time
        world.sync(drop_retained=drop_retained)
    (held,) = (h for ref, h in world.destination.held.items() if ref[1] == "k")
    assert [n for n in held.ids if not n.startswith("_instep_")] == ["b"]
    assert [s.object for s in world.steps if s.destructive] == ["shop.k.a"]


def test_a_table_in_the_place_of_another_has_its_own_types() -> None:
    world = World()
    world.database.create("t", Column("id", INT, key=1), Column("a", TEXT))
    world.sync()
    world.database.drop("t")
    world.database.create("t", Column("id", INT, key=1), Column("a", INT))
    try:
        world.sync()
        (table,) = world.store.accepted.catalog(NAME).tables
        (held,) = world.destination.held.values()
        assert held.table.by_name["a"].type == table.by_name["a"].type == INT
    finally:
        world.close()


def test_nothing_of_a_table_that_is_only_kept_is_taken_back(world: World) -> None:
    world.database.rename_column("t", "a", "c")
    for _ in range(2):  # names prove a removal the second time
        world.sync()
    world.database.drop("t")
    for _ in range(2):
        world.sync()
    (review,) = (r for r in world.store.reviews.find(NAME, ("applied",)) if r.kind in RENAMED and r.column)
    with pytest.raises(Conflict, match="only retained"):
        prepare(world.context, find(world.context, review.id))


def test_a_key_of_a_column_that_somebody_has_dropped_is_refused(world: World) -> None:
    world.change_by_hand(("shop", "t"), "a")
    made = set_key.prepare(world.context, "main.t", ("a",), "rekey")
    assert "column a is not at the destination" in made.blocker


def test_a_rename_is_looked_for_without_a_column_that_somebody_has_dropped(world: World) -> None:
    for name in ("t", "k"):
        world.change_by_hand(("shop", name), "a")
        world.database.rename_column(name, "a", "c")
    assert {t.status for t in world.sync().tables} == {"paused"}


def test_what_goes_with_a_dropped_table_is_not_asked(world: World) -> None:
    """A drift is asked about; the removal of its table, which the policy drops, settles it."""
    world.policy = Policy(preset="allow_all", modifiers={"removed": "drop"})
    world.named.add("shop.t")
    world.change_by_hand(("shop", "t"), BY_HAND)
    world.database.drop("t")
    for _ in range(2):  # names prove a removal the second time
        report = world.sync()
    assert not report.waiting
    assert not world.store.reviews.find(NAME, ("open",))


UNDOS = [
    # name, the kind of what is taken back, statements
    ("table", "table.removed", lambda d: d.drop("t")),
    ("column", "column.removed", lambda d: d.drop_column("t", "a")),
    ("rename", "column.renamed", lambda d: d.rename_column("t", "a", "c")),
]


@pytest.mark.sampled
@pytest.mark.parametrize("point", range(9))
@pytest.mark.parametrize(("kind", "statement"), [c[1:] for c in UNDOS], ids=[c[0] for c in UNDOS])
def test_an_undo_that_was_killed_is_finished_by_the_next_run(
    kind: str, statement: Callable[[MemoryDatabase], None], point: int
) -> None:
    world = World(policy=Policy(modifiers={"removed": "drop"}))
    world.database.create("k", Column("id", INT, key=1))
    world.database.create("t", Column("id", INT, key=1), Column("a", TEXT))
    world.database.insert("t", {"id": 1, "a": "x"})
    world.sync()
    before = {(ref, frozenset(held.table.by_name)) for ref, held in world.destination.held.items()}
    statement(world.database)
    world.sync()
    (review,) = (r for r in world.store.reviews.find(NAME, ("applied",)) if r.kind == kind)
    made = prepare(world.context, find(world.context, review.id))
    with world.killed_at(point) as died:
        apply_undo(world.context, made, ("*",))
    world.sync()
    check_blocked(world, {})
    there = {(ref, frozenset(held.table.by_name)) for ref, held in world.destination.held.items()}
    assert world.store.undos.waiting(NAME) == []
    if died and died[0] not in ("sync.claim.before", "sync.claim.after", "undo.before"):
        assert there == before
    world.close()
