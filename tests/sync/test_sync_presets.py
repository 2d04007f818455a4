# ruff: noqa: E501 - a case reads best on few lines
"""What each preset says to each change of a real source, and what is accepted then: no rows move, no JVM."""

from __future__ import annotations

import pytest

from instep.errors import Blocked, StalePlan
from instep.schema.policy.presets import PRESETS
from sync_world import MakeWorld, World, preset

A, R, I, T, C = "apply", "review", "ignore", "pause_table", "pause_connection"  # noqa: E741
BEFORE = (
    "CREATE TABLE c_added (id int PRIMARY KEY)",
    "CREATE TABLE c_removed (id int PRIMARY KEY, a int, b int)",
    "CREATE TABLE c_renamed (id int PRIMARY KEY, a int)",
    "CREATE TABLE c_widened (id int PRIMARY KEY, a int)",
    "CREATE TABLE c_narrowed (id int PRIMARY KEY, a bigint)",
    "CREATE TABLE c_retyped (id int PRIMARY KEY, a int)",
    "CREATE TABLE c_null (id int PRIMARY KEY, a int NOT NULL)",
    "CREATE TABLE c_default (id int PRIMARY KEY, a int)",
    "CREATE TABLE k_changed (id int PRIMARY KEY, a int)",
    "CREATE TABLE k_removed (id int PRIMARY KEY, a int)",
    "CREATE TABLE t_removed (id int PRIMARY KEY)",
    "CREATE TABLE t_renamed (id int PRIMARY KEY)",
    "CREATE TABLE t_replaced (id int PRIMARY KEY, a int)",
)
AFTER = (
    "ALTER TABLE c_added ADD a int",
    "ALTER TABLE c_removed DROP COLUMN a",
    "ALTER TABLE c_renamed RENAME a TO b",
    "ALTER TABLE c_widened ALTER a TYPE bigint",
    "ALTER TABLE c_narrowed ALTER a TYPE int",
    "ALTER TABLE c_retyped ALTER a TYPE varchar(5)",
    "ALTER TABLE c_null ALTER a DROP NOT NULL",
    "ALTER TABLE c_default ALTER a SET DEFAULT 1",
    "ALTER TABLE k_changed ALTER a SET NOT NULL",
    "ALTER TABLE k_changed DROP CONSTRAINT k_changed_pkey",
    "ALTER TABLE k_changed ADD PRIMARY KEY (a)",
    "ALTER TABLE k_removed DROP CONSTRAINT k_removed_pkey",
    "CREATE TABLE t_added (id int PRIMARY KEY)",
    "DROP TABLE t_removed",
    "ALTER TABLE t_renamed RENAME TO t_called",
    "DROP TABLE t_replaced",
    "CREATE TABLE t_replaced (id int PRIMARY KEY, b int)",
)
SAYS = {
    "table t_added added (1 column)": (A, I, I, A, I, R, C),
    "column c_added.a added (int32)": (A, A, I, A, A, R, C),
    "column c_removed.a removed (int32)": (A, A, A, A, A, R, C),
    "table t_removed removed (1 column)": (A, A, A, A, I, R, C),
    "column c_renamed.a renamed to b": (A, A, R, A, A, R, C),
    "table t_renamed renamed to t_called": (A, A, R, A, I, R, C),
    "column c_widened.a widened from int32 to int64": (A, A, A, A, A, R, C),
    "column c_narrowed.a narrowed from int64 to int32": (I, I, I, I, I, R, C),
    "column c_retyped.a retyped from int32 to string(5)": (R, R, R, I, I, R, C),
    "column c_null.a may now be NULL": (A, A, A, A, A, R, C),
    "default of column c_default.a set to 1": (A, A, A, A, A, A, A),
    "primary key of k_changed changed from (id) to (a)": (T, T, T, C, C, C, C),
    "column k_changed.a may no longer be NULL": (A, A, A, A, A, R, C),
    "primary key of k_removed removed (was (id))": (T, T, T, C, C, C, C),
    "table t_replaced replaced by another table of that name": (A, A, R, A, A, R, C),
}
ACCEPTED = {
    "c_added": ("id int32!, a int32",) * 2 + ("id int32!",) + ("id int32!, a int32",) * 2 + ("id int32!",) * 2,
    "c_removed": ("id int32!, a int32~, b int32",) * 3 + ("id int32!, b int32",) * 2 + ("id int32!, a int32, b int32",) * 2,
    "c_renamed": ("id int32!, b int32",) * 2 + ("id int32!, a int32",) + ("id int32!, b int32",) * 2 + ("id int32!, a int32",) * 2,
    "c_widened": ("id int32!, a int64",) * 5 + ("id int32!, a int32",) * 2,
    "c_narrowed": ("id int32!, a int64",) * 7,
    "c_retyped": ("id int32!, a int32",) * 7,
    "k_changed": ("id int32!, a int32",) * 7,
    "k_removed": ("id int32!, a int32",) * 7,
}  # fmt: skip
TABLES = {
    "t_added": ("t_added", None, None, "t_added", None, None, None),
    "t_removed": ("t_removed~",) * 4 + ("t_removed",) * 3,
    "t_called": ("t_called", "t_called", None, "t_called", None, None, None),
    "t_renamed": (None, None, "t_renamed", None, "t_renamed", "t_renamed", "t_renamed"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset(world: World, name: str) -> None:
    at = PRESETS.index(name)
    world.policy = preset(name)
    world.run(*BEFORE)
    world.evolve()
    assert len(world.tables()) == len(BEFORE)
    world.run(*AFTER)
    found = world.detect()
    assert world.reviews() == {s: says[at] for s, says in SAYS.items()}
    pauses = {"k_changed", "k_removed"} if at < 3 else {""}
    assert set(world.pauses()) == pauses
    if at < 3:
        world.evolve(found, ("*",))
        assert {t: world.schema(t) for t in ACCEPTED} == {t: schemas[at] for t, schemas in ACCEPTED.items()}
        assert {t: world.tables().get(t) for t in TABLES} == {t: names[at] for t, names in TABLES.items()}
        assert world.accepted("t_replaced").generation == (0 if name == "block_all" else 1)
        assert all(a in (R, I, T) for a in world.reviews().values())
    else:
        with pytest.raises(Blocked, match="has been paused since") as paused:
            world.evolve(found, ("*",))
        assert paused.value.hint.startswith("see `instep changes show c-")
        assert world.schema("c_added") == "id int32!"


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["propagate_all", "propagate_columns"])
def test_propagate_without_breaking_changes(world: World, name: str) -> None:
    at = PRESETS.index(name)
    world.policy = preset(name)
    world.run(*(s for s in BEFORE if "k_" not in s))
    world.evolve()
    world.run(*(s for s in AFTER if "k_" not in s))
    world.evolve()
    assert {t: world.schema(t) for t in ACCEPTED if t[0] == "c"} == {
        t: schemas[at] for t, schemas in ACCEPTED.items() if t[0] == "c"
    }
    assert {t: world.tables().get(t) for t in TABLES} == {t: names[at] for t, names in TABLES.items()}
    assert world.preview().plan.steps == ()


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["approve", "block_all", "allow_all"])
def test_everything_approved_lets_everything_in(world: World, name: str) -> None:
    world.policy = preset(name)
    world.run(*BEFORE)
    world.evolve()
    world.run(*AFTER)
    world.detect()
    reviews = world.store.reviews.find("shop", ("open",))
    from instep.control.reviews import answer

    answer(world.store, reviews, "approved", "test")
    world.evolve()
    assert world.pauses() == {}
    assert world.reviews() == {}
    assert world.preview().plan.steps == ()
    assert world.schema("k_changed") == "id int32, a int32!"
    assert world.schema("k_removed") == "id int32, a int32"
    assert world.schema("c_retyped") == "id int32!, a string(5)"
    assert world.tables()["t_called"] == "t_called"
    assert world.tables()["t_removed"] == "t_removed~"
    wanted = {(b.table[1], b.scope) for b in world.store.backfills.waiting("shop")}
    whole = {(name, "table") for name in ("k_changed", "k_removed", "t_replaced")}
    since = {("c_added", "since")} - ({("c_added", "since")} if name == "allow_all" else set())
    assert wanted == whole | since  # no sync has recorded how far c_added was read while its column waited


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["approve", "block_all", "allow_all"])
def test_everything_rejected_keeps_everything_out(world: World, name: str) -> None:
    world.policy = preset(name)
    world.run(*BEFORE)
    world.evolve()
    before = world.store.accepted.catalog("shop")
    world.run(*AFTER)
    world.detect()
    from instep.control.reviews import answer

    answer(world.store, world.store.reviews.find("shop", ("open",)), "rejected", "test")
    world.detect()
    world.evolve()
    assert {t.path: [c.name for c in t.columns] for t in world.store.accepted.catalog("shop").tables} == {
        t.path: [c.name for c in t.columns] for t in before.tables
    }
    assert world.pauses() == {}
    found = world.preview()
    assert found.plan.steps == ()
    assert set(found.detection.unkeyed(moved=False)) == {("public", "k_changed"), ("public", "k_removed")}


def test_a_connection_that_was_stopped_runs_when_the_source_takes_it_back(make_world: MakeWorld) -> None:
    world = make_world()
    world.policy = preset("approve")
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)")
    world.evolve()
    world.run("ALTER TABLE t DROP CONSTRAINT t_pkey")
    found = world.detect()
    with pytest.raises(Blocked):
        world.evolve(found)
    world.run("ALTER TABLE t ADD PRIMARY KEY (id)")
    world.evolve()
    assert world.pauses() == {}
    assert world.events("connection.paused", "connection.resumed") == ["connection.paused", "connection.resumed"]


def test_stop_waits_for_a_person_even_when_the_source_takes_it_back(world: World) -> None:
    from instep.control.pauses import resume

    world.policy = preset("stop")
    world.run("CREATE TABLE t (id int PRIMARY KEY)")
    world.evolve()
    world.run("ALTER TABLE t ADD a int")
    world.detect()
    world.run("ALTER TABLE t DROP a")
    with pytest.raises(Blocked):
        world.evolve()
    world.detect()
    resume(world.store, "shop", "test")
    world.evolve()
    assert world.schema("t") == "id int32!"


def test_a_plan_is_refused_once_what_it_applies_was_rejected_or_is_gone(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY)")
    world.evolve()
    world.run("ALTER TABLE t ADD a int")
    found = world.preview()
    world.answer("rejected") or world.store.reviews.decide(next(iter(found.reviews.values())).id, "rejected", "test")
    with pytest.raises(StalePlan, match=r"column public.t.a added \(int32\): this was rejected"):
        world.evolve(found)
    world.store.reviews.decide(next(iter(found.reviews.values())).id, "approved", "test")
    world.run("ALTER TABLE t DROP a")
    world.preview()
    with pytest.raises(StalePlan, match="is no longer at the source"):
        world.evolve(found)
    assert world.schema("t") == "id int32!"


def test_a_plan_file_answers_its_reviews_and_holds_only_once(world: World) -> None:
    from instep.schema.planning.plan import plan_from_dict, plan_to_dict
    from instep.sync.schema_changes.evolve import evolve

    world.run("CREATE TABLE t (id int PRIMARY KEY)")
    world.evolve()
    world.run("ALTER TABLE t ADD a int", "ALTER TABLE t ADD b int")
    made = plan_from_dict(plan_to_dict(world.preview().plan))
    version = evolve(world.context, made)
    assert world.reviews() == {}
    assert world.events("change.applied")[-2:] == ["change.applied"] * 2
    with pytest.raises(StalePlan):
        evolve(world.context, made)
    assert world.store.accepted.latest("shop").version == version  # type: ignore[union-attr]
