"""`changes map`: a removal and an addition become one rename. Without rows here; with rows below (Spark)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.shows import shows
from instep.errors import Blocked, InstepError
from instep.schema.policy.policy import Policy, Rule
from instep.schema.selection.selection import Selection, patterns
from instep.sync.claim import claimed
from instep.sync.schema_changes import declare_column_rename as mapping
from instep.sync.schema_changes import undo
from sync_world import MakeWorld, World, cursor, preset

TABLE = "CREATE TABLE t (id int PRIMARY KEY, a int, b varchar(20), c bigint)"
RENAMED = ("ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN z int")
HOLD = preset("allow_all", Rule(on=("column.removed", "column.added"), decide="review"))
KINDS = ["postgres", "sqlite"]


def mapped(world: World, old: str = "a", new: str = "z") -> mapping.ColumnRenamePlan:
    path = world.accepted("t").path
    return mapping.prepare(world.context, f"{path}.{old}", f"{path}.{new}")


def begun(world: World, *statements: str) -> World:
    world.run(TABLE)
    world.evolve()
    world.run(*(statements or RENAMED))
    return world


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_pending_on_both_sides(make_world: MakeWorld, kind: str) -> None:
    world = begun(make_world(kind, policy=HOLD))
    world.detect()
    assert len(world.reviews("open")) == 2
    found = mapped(world)
    assert len(found.plan.steps) == 1
    mapping.carry_out(world.context, found)
    world.detect()
    assert world.reviews("open") == {}
    assert len(world.reviews("obsolete")) == 2
    assert world.tables() == {"t": "t"}
    assert [c.alias for c in world.accepted("t").columns if not c.retained and c.name == "z"] == ["z"]
    assert "a" not in world.accepted("t").by_name
    assert world.events("change.mapped") == ["change.mapped"]
    assert world.preview().plan.steps == ()


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_retained_and_let_in(make_world: MakeWorld, kind: str) -> None:
    world = begun(make_world(kind))
    world.detect()
    world.evolve()
    assert "a" in world.accepted("t").by_name
    mapping.carry_out(world.context, mapped(world))
    columns = world.accepted("t").by_name
    assert (columns["z"].retained, columns["z__v1"].retained, "a" in columns) == (False, True, False)
    assert world.preview().plan.steps == ()
    assert world.preview().detection.decisions == ()


REFUSED = [
    ("still at the source", ("ALTER TABLE t ADD COLUMN z int",), "a", "z", "still at the source"),
    ("the new one is not there", ("ALTER TABLE t DROP COLUMN a",), "a", "z", "no column .*t.z at the source"),
    ("the old one is not there", RENAMED, "q", "z", "no column .*t.q accepted"),
    ("types that do not fit", ("ALTER TABLE t DROP COLUMN b", "ALTER TABLE t ADD COLUMN z int"), "b", "z", "is int32"),
    ("a name that is taken", ("ALTER TABLE t DROP COLUMN a",), "a", "id", "in the key"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("statements", "old", "new", "why"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_is_refused(world: World, statements: tuple[str, ...], old: str, new: str, why: str) -> None:
    begun(world, *statements)
    before = world.store.accepted.latest("shop")
    with pytest.raises(InstepError, match=why) as error:
        mapped(world, old, new)
    assert error.value.hint
    assert world.store.accepted.latest("shop") == before


def test_a_hashed_column_is_not_mapped_to_one_in_clear(world: World) -> None:
    path = f"{world.case.schema}.t"
    world.selection = Selection(hashed=patterns([f"{path}.b"]))
    begun(world, "ALTER TABLE t DROP COLUMN b", "ALTER TABLE t ADD COLUMN z varchar(20)")
    with pytest.raises(Blocked, match="is hashed"):
        mapped(world, "b", "z")


def test_a_wider_type_widens_the_column(world: World) -> None:
    begun(world, "ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN z bigint")
    mapping.carry_out(world.context, mapped(world))
    assert str(world.accepted("t").by_name["z"].type) == "int64"
    assert world.preview().plan.steps == ()


def test_other_changes_of_the_table_wait_as_before(world: World) -> None:
    world.policy = preset("approve")
    begun(world, *RENAMED, "ALTER TABLE t RENAME b TO d")
    world.detect()
    mapping.carry_out(world.context, mapped(world))
    world.detect()
    assert list(world.reviews("open")) == ["column t.b renamed to d"]


class Killed(BaseException):
    """As if the process ended here."""


def killed_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def crash(name: str) -> None:
        if name == point:
            raise Killed

    monkeypatch.setattr("instep.sync.schema_changes.apply.crashpoint", crash)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("let_in", [False, True], ids=["pending", "let in"])
@pytest.mark.parametrize("point", ["apply.table.before", "apply.table.after", "apply.accepted"])
def test_an_interrupted_mapping_is_finished_by_the_next_run(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, kind: str, point: str, let_in: bool
) -> None:
    world = begun(make_world(kind) if let_in else make_world(kind, policy=HOLD))
    world.detect()
    if let_in:
        world.evolve()
    found = mapped(world)
    with monkeypatch.context() as patch:
        killed_at(patch, point)
        with pytest.raises(Killed):
            mapping.carry_out(world.context, found)
    _resumed(world)
    assert "a" not in world.accepted("t").by_name
    assert not world.accepted("t").by_name["z"].retained
    assert world.preview().plan.steps == ()
    assert world.store.mappings.waiting("shop") == []
    assert world.events("change.mapped") == ["change.mapped"]


def _resumed(world: World) -> None:
    with claimed(world.context, "apply") as run:
        mapping.resume_mappings(replace(world.context, run=run), run)


@pytest.mark.parametrize("kind", ["postgres"])
@shows(trap=5)
def test_old_rows_keep_their_values_and_new_ones_arrive(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.run(TABLE, "INSERT INTO t VALUES (1, 10, 'x', 1), (2, 20, 'y', 2)")
    world.sync()
    world.run(*RENAMED, "INSERT INTO t (id, b, c, z) VALUES (3, 'w', 3, 30)")
    world.run("UPDATE t SET z = id * 10")
    world.settled()
    found = mapped(world)
    assert (found.empty, found.interim is not None) == (1, True)
    mapping.carry_out(world.context, found)
    assert [b.table[1] for b in world.store.backfills.waiting("shop")] == ["t"]
    assert world.rows("t", "id", "z", "z__v1") == [(1, 10, 10), (2, 20, 20), (3, None, 30)]
    world.sync()
    assert world.rows("t", "id", "z") == [(1, 10), (2, 20), (3, 30)]
    assert world.differing() == {}
    assert world.store.backfills.waiting("shop") == []


BETWEEN = {
    "pending": HOLD,
    "let in": preset("allow_all", backfill="none"),
    "filled": preset("allow_all", backfill="column"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", list(BETWEEN.values()), ids=list(BETWEEN))
def test_rows_that_changed_between_the_removal_and_the_mapping(
    make_world: MakeWorld, kind: str, policy: Policy
) -> None:
    """The old column kept what it had in them, and their cursor is behind the table's."""
    world = make_world(kind, policy=policy, settings={"t": cursor("c")})
    world.run(TABLE, "INSERT INTO t VALUES (1, 10, 'x', 1), (2, 20, 'y', 2), (3, 30, 'z', 3)")
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN z int", "UPDATE t SET z = a", "ALTER TABLE t DROP COLUMN a",
              "UPDATE t SET z = 11, c = 4 WHERE id = 1")  # fmt: skip
    world.settled()
    world.run("UPDATE t SET c = 5 WHERE id = 2")
    world.sync()
    found = mapped(world)
    assert (found.empty, found.stale) == (0, True)
    mapping.carry_out(world.context, found)
    world.sync()
    assert world.rows("t", "id", "z") == [(1, 11), (2, 20), (3, 30)]
    assert (world.differing(), world.store.backfills.waiting("shop")) == ({}, [])


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_a_mapping_before_any_load_reads_nothing_again(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind, policy=HOLD, settings={"t": cursor("c")})
    world.run(TABLE, "INSERT INTO t VALUES (1, 10, 'x', 1), (2, 20, 'y', 2)")
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN z int", "UPDATE t SET z = a", "ALTER TABLE t DROP COLUMN a")
    world.detect()
    found = mapped(world)
    assert (found.empty, found.stale) == (0, False)
    mapping.carry_out(world.context, found)
    world.sync()
    assert world.rows("t", "id", "z") == [(1, 10), (2, 20)]
    assert (world.differing(), world.store.backfills.find("shop")) == ({}, [])


LEFT = [("pending", HOLD, ("z",)), ("let in", preset("allow_all"), ("z", "z__v1"))]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("policy", "added"), [c[1:] for c in LEFT], ids=[c[0] for c in LEFT])
def test_a_wrong_pair_is_taken_back_and_mapped_to_another(
    make_world: MakeWorld, kind: str, policy: Policy, added: tuple[str, ...]
) -> None:
    world = make_world(kind, policy=policy, engine="local")
    world.run(TABLE, "INSERT INTO t VALUES (1, 10, 'x', 1)")
    world.sync()
    world.run(*RENAMED, "ALTER TABLE t ADD COLUMN y int", "UPDATE t SET z = 7, y = 10")
    world.settled()
    mapping.carry_out(world.context, mapped(world))
    (review,) = [r for r in world.store.reviews.find("shop", ("applied",)) if r.kind == "column.renamed"]
    (plan, *_) = world.store.plans.history("shop")
    assert undo.find(world.context, plan.id) == [review]
    made = undo.prepare(world.context, [review])
    assert any("z itself is not read until it is approved" in limit for limit in made.limits)
    undo.apply_undo(world.context, made)
    assert world.rows("t", "id", "a") == [(1, 10)]
    world.sync()
    assert not any(r.kind == "column.renamed" for r in world.store.reviews.find("shop", ("open",)))
    assert world.rows("t", "id", "a") == [(1, 10)]
    for one in world.store.reviews.find("shop", ("rejected", "open")):
        if one.kind == "column.added":
            world.store.reviews.decide(one.id, "approved", "ann")
    world.sync()
    mapping.carry_out(world.context, mapped(world, "a", "y"))
    world.sync()
    assert world.rows("t", "id", "y", *added) == [(1, 10, *(7 for _ in added))]
    assert world.differing() == {}
