"""What a run keeps of the three schemas, over real sources and a real destination. No JVM."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.shows import shows
from instep.control.object_history import object_history
from instep.control.schema_history import catalog_of, compare, version_at, versions
from instep.crash import Crashed
from instep.operations.values import Side
from instep.schema.catalog.catalog import fingerprint
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.plan import desired
from sync_world import MakeWorld, World, preset

FIRST = "CREATE TABLE t (id int PRIMARY KEY, a int, b int)"
SIDES: tuple[Side, ...] = ("source", "accepted", "destination")


def columns(world: World, side: Side, when: int | None = None) -> list[str]:
    catalog = catalog_of(world.store, version_at(world.store, "shop", side, when))
    return [c.name for t in catalog.tables for c in t.columns if not c.name.startswith("_instep")]


def numbers(world: World) -> list[int]:
    return [len(versions(world.store, "shop", side)) for side in SIDES]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_each_side_has_its_own_versions(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.run(FIRST)
    world.preview()
    assert numbers(world) == [1, 0, 0]
    world.evolve()
    world.run("ALTER TABLE t ADD COLUMN c int")
    world.preview()
    world.preview()
    assert numbers(world) == [2, 1, 1]
    assert (columns(world, "source"), columns(world, "destination")) == (["id", "a", "b", "c"], ["id", "a", "b"])
    world.evolve()
    world.evolve()
    assert numbers(world) == [2, 2, 2]
    for side in SIDES:
        assert columns(world, side, 1) == ["id", "a", "b"]
        assert columns(world, side, 2) == ["id", "a", "b", "c"]
    [run] = {v.run for side in ("accepted", "destination") for v in versions(world.store, "shop", side)[1:]}
    assert world.store.runs.get(run).kind == "apply"


@shows(trap=6)
def test_what_is_kept_of_the_destination_is_what_is_there(world: World) -> None:
    world.policy = preset("allow_all")
    world.run(FIRST, "CREATE TABLE u (id int PRIMARY KEY)")
    world.evolve()
    for change in (
        "ALTER TABLE t RENAME COLUMN b TO bb",
        "ALTER TABLE t ALTER a TYPE bigint",
        "ALTER TABLE u RENAME TO v",
        "ALTER TABLE t DROP COLUMN a",
    ):
        world.run(change)
        world.evolve()
        known = catalog_of(world.store, version_at(world.store, "shop", "destination"))
        accepted = world.store.accepted.catalog("shop")
        there = world.destination.schema.inspect([destination_ref(t, world.context.naming) for t in accepted.tables])
        assert {t.ref: [(c.name, str(c.type)) for c in t.columns] for t in known.tables} == {
            t.ref: [(c.name, str(c.type)) for c in t.columns] for t in there.tables
        }
    wanted = desired(accepted, world.context.naming)
    assert {t.ref for t in wanted.tables} == {t.ref for t in known.tables}
    assert [v.label for v in versions(world.store, "shop", "accepted")] == ["1.0", "2.0", "2.1", "3.0", "4.0"]


def test_a_column_is_followed_through_its_names(world: World) -> None:
    world.run(FIRST)
    world.evolve()
    world.run("ALTER TABLE t RENAME COLUMN b TO bb")
    world.evolve()
    world.run("ALTER TABLE t RENAME TO tt")
    world.evolve()
    world.run("ALTER TABLE tt ALTER bb TYPE bigint")
    world.evolve()
    found = object_history(world.store, "shop", "t.b")
    assert (found.table, found.column) == ("public.tt", "bb")
    assert [(e.label, e.kind) for e in found.entries] == [
        ("1.0", "table.added"), ("2.0", "column.renamed"), ("3.0", "table.renamed"), ("3.1", "column.widened"),
    ]  # fmt: skip
    assert {e.rule for e in found.entries} == {"selection", "preset allow_all"}
    assert [c.version for c in found.columns] == [1]
    assert all(e.run and e.change for e in found.entries)


def test_another_server_is_no_change_of_the_schema(world: World) -> None:
    """All ids are new, the shapes are the same: a version of the source, and a minor one of what is accepted."""
    world.run(FIRST)
    world.evolve()
    accepted = world.store.accepted.catalog("shop")
    moved = [replace(t, id=f"9{t.id}", columns=tuple(replace(c, id=f"9{c.id}") for c in t.columns))
             for t in accepted.tables]  # fmt: skip
    world.store.accepted.add("shop", type(accepted).of(moved), who="test", why="as if from another server")
    seen = world.store.discoveries.get("shop")
    assert seen is not None
    there = type(accepted).of(replace(t, alias="") for t in moved)
    world.store.discoveries.save("shop", replace(seen, catalog=there, identity="another server", fingerprint="old"))
    world.evolve()
    first, second = versions(world.store, "shop", "source")
    assert first.identity != second.identity
    assert compare(world.store, first, second).lines == ()
    known = versions(world.store, "shop", "accepted")
    assert [v.label for v in known] == ["1.0", "1.1", "1.2"]
    assert compare(world.store, known[0], known[1]).lines == ()
    assert [e.kind for e in object_history(world.store, "shop", "t.a").entries] == ["table.added"]


@shows(trap=6)
def test_nothing_is_kept_before_all_of_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepted version and destination are one transaction; the next run repairs what the destination has already."""
    world.run(FIRST)
    made = world.preview()

    def fail(*_: object, **__: object) -> None:
        raise Crashed

    monkeypatch.setattr(type(world.store.schemas), "add", fail)
    with pytest.raises(Crashed):
        world.evolve(made)
    monkeypatch.undo()
    assert numbers(world) == [1, 0, 0]
    world.evolve()
    assert numbers(world) == [1, 1, 1]
    [kept] = world.store.schemas.history("shop", "destination")
    assert fingerprint(world.store.schemas.catalog("shop", "destination", 1)) == kept.fingerprint
