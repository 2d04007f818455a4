"""Columns that were kept as JSON are let in after all: no value is lost, whatever the source has done meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from instep.crash import VARIABLE, Crashed
from instep.destinations.iceberg.backfill import fill as iceberg_fill
from instep.schema.selection.selection import Selection, patterns
from instep.sync.loading.engine import LocalEngine
from instep.sync.operations.restore import prepare, restore, savepoints
from instep.sync.progress import SyncReport
from instep.sync.run import RunScope, sync
from sync_world import MakeWorld, World, cursor, preset

EXTRA = "_instep_extra"
SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, n int)",
    "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
)


def run(world: World, **wanted: Any) -> SyncReport:
    """A sync that lets in no new column by itself."""
    return sync(replace(world.context, max_new_columns=0), RunScope(**wanted), engine=LocalEngine())


def held(make_world: MakeWorld, kind: str = "postgres", *columns: str, **settings: Any) -> World:
    """Three rows whose column `a` is kept as JSON: 10, 20 and 30."""
    world = make_world(kind)
    if settings:
        world.settings["t"] = cursor("n", **settings)
    world.run(*SETUP)
    run(world)
    world.run(*(f"ALTER TABLE t ADD COLUMN {c}" for c in (*columns, "a int")), "UPDATE t SET n = n + 10, a = id * 10")
    run(world)
    assert kept(world)[1]["a"] == 10
    return world


def kept(world: World) -> dict[int, Any]:
    rows = world.rows("t", "id", EXTRA, deleted=True)
    return {id: text and json.loads(text) for id, text in rows}


def values(world: World, column: str = "a") -> dict[int, Any]:
    return {row[0]: row[1] for row in world.rows("t", "id", column, deleted=True)}


def waiting(world: World) -> list[tuple[str, str]]:
    return [(b.scope, b.column) for b in world.store.backfills.waiting("shop")]


KINDS = ["postgres", "sqlite"]
SETTINGS = [("whole compare", {}), ("with a cursor", {"deletes": "ignore"})]


@pytest.mark.sampled
@pytest.mark.parametrize("settings", [s[1] for s in SETTINGS], ids=[s[0] for s in SETTINGS])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_gone_at_the_source(make_world: MakeWorld, kind: str, settings: dict[str, Any]) -> None:
    world = held(make_world, kind, **settings)
    world.run("DELETE FROM t WHERE id = 3", "UPDATE t SET a = 21, n = 30 WHERE id = 2")
    world.answer("approved")
    report = run(world)
    assert report.status == "done", report
    assert values(world) == {1: 10, 2: 21, 3: 30}
    assert kept(world)[3] is None
    assert waiting(world) == []
    assert any(f"a taken out of {EXTRA} in 1 rows" in note for note in report.notes), report.notes


@pytest.mark.sampled
@pytest.mark.parametrize("settings", [s[1] for s in SETTINGS], ids=[s[0] for s in SETTINGS])
@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_the_source_has_dropped(make_world: MakeWorld, kind: str, settings: dict[str, Any]) -> None:
    """It waits on, is let in with its values, and stays behind like every removed column."""
    world = held(make_world, kind, "b int", **settings)
    world.run("UPDATE t SET b = 1, n = n + 10")
    run(world)
    world.run("ALTER TABLE t DROP COLUMN a")
    run(world)
    [review] = [r for r in world.store.reviews.find("shop", ("open",)) if r.column == "a"]
    assert "the source has dropped it" in review.why
    assert kept(world) == {i: {"a": i * 10, "b": 1} for i in (1, 2, 3)}
    from instep.control.reviews import answer

    answer(world.store, [review], "approved", "test")
    world.run("UPDATE t SET n = 99 WHERE id = 1", "INSERT INTO t VALUES (4, 100, 2)")
    assert run(world).status == "done"
    assert values(world) == {1: 10, 2: 20, 3: 30, 4: None}
    assert kept(world) == {1: {"b": 1}, 2: {"b": 1}, 3: {"b": 1}, 4: {"b": 2}}
    assert waiting(world) == []
    run(world), run(world, full=True)
    assert values(world) == {1: 10, 2: 20, 3: 30, 4: None}
    assert [c.retained for c in world.accepted("t").columns if c.name == "a"] == [True]


def test_rejected_it_goes_with_the_next_load_of_a_row(make_world: MakeWorld) -> None:
    world = held(make_world, deletes="ignore")
    world.run("ALTER TABLE t DROP COLUMN a")
    run(world)
    world.answer("rejected")
    world.run("UPDATE t SET n = 99 WHERE id = 3")
    run(world)
    assert world.accepted("t").extra == ()
    assert kept(world) == {1: {"a": 10}, 2: {"a": 20}, 3: None}


@pytest.mark.sampled
@pytest.mark.parametrize(
    "point", ["apply.accepted", "promote.before", "promote.committed", "promote.done", "sync.noted"]
)
def test_interrupted_it_goes_on(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """Also where the next run reads the whole table, which would write over the objects."""
    world = held(make_world)
    world.run("ALTER TABLE t DROP COLUMN a")
    run(world)
    world.answer("approved")
    monkeypatch.setattr(iceberg_fill, "PARTS_PER_CORE", 0)
    monkeypatch.setenv(VARIABLE, f"{point}=raise")
    with pytest.raises(Crashed):
        run(world)
    monkeypatch.delenv(VARIABLE)
    world.run("UPDATE t SET n = 99 WHERE id = 1")
    assert run(world).status == "done"
    assert values(world) == {1: 10, 2: 20, 3: 30}
    assert set(kept(world).values()) == {None}
    assert waiting(world) == []


def test_dropped_between_the_approval_and_the_sync(make_world: MakeWorld) -> None:
    """Its table is not what was approved: asked again, and nothing is lost meanwhile."""
    world = held(make_world)
    world.answer("approved")
    world.run("ALTER TABLE t DROP COLUMN a")
    run(world)
    assert kept(world)[1] == {"a": 10}
    assert [r.column for r in world.store.reviews.find("shop", ("open",))] == ["a"]
    world.answer("approved")
    run(world)
    assert values(world) == {1: 10, 2: 20, 3: 30}


def test_dropped_while_a_fill_waits(make_world: MakeWorld) -> None:
    from instep.schema.maintenance import BackfillLimits

    world = held(make_world, deletes="ignore")
    world.limits = BackfillLimits(max_bytes=1)
    world.answer("approved")
    run(world)
    assert set(waiting(world)) == {("column", "a"), ("extra", "a")}
    assert values(world) == {1: None, 2: None, 3: 30}, "the last row is read again by every sync"
    world.run("ALTER TABLE t DROP COLUMN a", "UPDATE t SET n = 99 WHERE id = 1")
    run(world), run(world)
    assert values(world) == {1: 10, 2: 20, 3: 30}
    assert waiting(world) == []


def test_what_does_not_fit_stays_where_it_is(make_world: MakeWorld) -> None:
    world = held(make_world, "sqlite")
    world.run("UPDATE t SET a = 'many' WHERE id = 2")
    run(world)
    world.run("ALTER TABLE t DROP COLUMN a")
    run(world)
    world.answer("approved")
    for _ in range(2):
        report = run(world, full=True)
        assert any("1 values of a do not fit and stay" in note for note in report.notes), report.notes
        assert values(world) == {1: 10, 2: None, 3: 30}
        assert kept(world) == {1: None, 2: {"a": "many"}, 3: None}


TYPES = [
    ("bool", "true", "True"),
    ("bigint", "9223372036854775807", "9223372036854775807"),
    ("numeric(20,4)", "12345678901.2345", "12345678901.2345"),
    ("float8", "0.1", "0.1"),
    ("date", "'2026-01-02'", "2026-01-02"),
    ("timestamptz", "'2026-01-02 03:04:05.678901Z'", "2026-01-02 03:04:05.678901+00:00"),
    ("text", "'a \"quoted\" word'", 'a "quoted" word'),
    ("uuid", "'8f14e45f-ceea-467f-a0ab-2f3d9a1b0c11'", "8f14e45f-ceea-467f-a0ab-2f3d9a1b0c11"),
    ("bytea", "'\\x00ff'", "b'\\x00\\xff'"),
    ("jsonb", "'{\"k\": [1, null]}'", '{"k":[1,null]}'),
]


def test_values_of_all_types_come_back_as_they_were(make_world: MakeWorld) -> None:
    world = held(make_world, "postgres", *(f"c{i} {kind}" for i, (kind, _, _) in enumerate(TYPES)))
    for i, (_, sql, _) in enumerate(TYPES):
        world.run(f"UPDATE t SET c{i} = {sql} WHERE id = 1")  # noqa: S608 - the values stand above
    run(world)
    world.run(*(f"ALTER TABLE t DROP COLUMN c{i}" for i in range(len(TYPES))))
    run(world)
    world.answer("approved")
    assert run(world).status == "done"
    found = {kind: str(values(world, f"c{i}")[1]) for i, (kind, _, _) in enumerate(TYPES)}
    assert {k: v.replace(" ", "") if k == "jsonb" else v for k, v in found.items()} == {k: e for k, _, e in TYPES}
    assert kept(world)[1] is None


def test_a_policy_that_drops(make_world: MakeWorld) -> None:
    """What is let in and removed goes as the policy says, and can be taken back."""
    world = held(make_world)
    world.run("ALTER TABLE t DROP COLUMN a")
    run(world)
    world.policy = preset("propagate_all")
    world.answer("approved")
    run(world)
    assert values(world) == {1: 10, 2: 20, 3: 30}
    run(world)
    assert world.schema("t") == "id int32!, n int32"


@pytest.mark.sampled
@pytest.mark.parametrize("drops", [False, True], ids=["at the source", "gone at the source"])
def test_restored_to_before_it_was_let_in(make_world: MakeWorld, drops: bool) -> None:
    """The snapshot has the values as JSON only: they are taken out again before a load writes over them."""
    world = held(make_world, "postgres", deletes="ignore")
    before = savepoints(world.context, "public.t")[1][0]
    if drops:
        world.run("ALTER TABLE t DROP COLUMN a")
        run(world)
    world.answer("approved")
    run(world)
    assert values(world) == {1: 10, 2: 20, 3: 30}
    made = prepare(world.context, "public.t", before.id)
    assert [name for name, _ in made.promoted] == ["a"]
    restore(world.context, made, ["*"])
    assert (kept(world)[1], values(world)[1]) == ({"a": 10}, None)
    world.run("UPDATE t SET n = 50 WHERE id = 1")
    run(world)
    run(world)
    assert values(world) == {1: 10, 2: 20, 3: 30}
    assert waiting(world) == []


@pytest.mark.parametrize("pattern", ["public.t.b", "public.t.a"])
def test_hashed_by_one_of_its_names_while_a_rename_waits(make_world: MakeWorld, pattern: str) -> None:
    world = make_world()
    world.run(*SETUP)
    run(world)
    world.run("ALTER TABLE t ADD COLUMN a text", "UPDATE t SET a = 'clear-' || id")
    run(world)
    assert kept(world)[1]["a"] == "clear-1"
    world.answer("approved")
    world.policy = preset("block_all")
    world.store.pauses.pause("shop", "later", table=("public", "t"))
    run(world)
    world.run("ALTER TABLE t RENAME a TO b", "DELETE FROM t WHERE id = 1")
    world.selection = Selection(hashed=patterns([pattern]))
    world.store.pauses.resume("shop", table=("public", "t"), who="ann")
    run(world)
    assert set(world.accepted("t").by_name) >= {"a"}
    assert all(len(value) == 64 for value in values(world).values()), values(world)
