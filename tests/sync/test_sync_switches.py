"""Switches over real sources: they follow what they are about, and nothing is shown under another name."""

from __future__ import annotations

from events.shows import shows
from instep.schema.selection.overrides import Switch, bind
from instep.sync.schema_changes.selected import selected_reads
from sync_world import MakeWorld, World, preset

T = "CREATE TABLE t (id int PRIMARY KEY, email text, note text)"


def switch(world: World, *switches: Switch) -> None:
    seen = world.store.discoveries.get("shop")
    assert seen is not None
    bound = [bind(s, seen.catalog, seen.identity) for s in switches]
    world.store.switches.set("shop", bound, "ann")


def reads(world: World) -> dict[str, str]:
    """Accepted table to its columns as they are read: `accepted<source`, with `#` for hashed."""
    found, _ = selected_reads(world.context, world.preview().detection)
    columns = {
        r.table.name: [f"{'#' * c.hashed}{c.column.name}<{c.source.name}" for c in r.columns if c.source] for r in found
    }
    return {name: " ".join(listed) for name, listed in columns.items()}


@shows(trap=12)
def test_a_hashed_column_stays_hashed_through_renames_and_moves(world: World) -> None:
    world.run(T)
    world.evolve()
    switch(world, Switch("public", "t", "email", hashed=True))
    world.run("ALTER TABLE t RENAME COLUMN email TO mail")
    assert reads(world) == {"t": "id<id #email<mail note<note"}, "held or not, it is hashed"
    world.evolve()
    assert reads(world) == {"t": "id<id #mail<mail note<note"}
    assert [s.path for s in world.store.switches.of("shop")] == ["public.t.mail"]
    world.run("CREATE SCHEMA hr", "ALTER TABLE t SET SCHEMA hr", "ALTER TABLE hr.t RENAME TO people")
    world.evolve()
    assert reads(world) == {"people": "id<id #mail<mail note<note"}
    assert [s.path for s in world.store.switches.of("shop")] == ["hr.people.mail"]


def test_swapped_names_swap_what_was_chosen(world: World) -> None:
    world.run(T)
    world.evolve()
    switch(world, Switch("public", "t", "email", hashed=True), Switch("public", "t", "note", enabled=False))
    world.run(
        "BEGIN; ALTER TABLE t RENAME COLUMN email TO x; ALTER TABLE t RENAME COLUMN note TO email;"
        "ALTER TABLE t RENAME COLUMN x TO note; COMMIT"
    )
    assert reads(world) == {"t": "id<id #email<note"}
    world.evolve()
    assert reads(world) == {"t": "id<id #note<note"}


def test_a_rename_that_waits_keeps_a_column_off(world: World) -> None:
    world.policy = preset("approve")
    world.run(T)
    world.evolve()
    switch(world, Switch("public", "t", "note", enabled=False))
    world.run("ALTER TABLE t RENAME COLUMN note TO remark")
    assert reads(world) == {"t": "id<id email<email"}
    assert world.reviews() == {}, "what is off is not asked about"


def test_a_new_column_under_the_old_name_is_a_new_column(world: World) -> None:
    world.run(T)
    world.evolve()
    switch(world, Switch("public", "t", "note", enabled=False))
    world.run("ALTER TABLE t RENAME COLUMN note TO remark")
    world.evolve()
    world.run("ALTER TABLE t ADD COLUMN note text")
    world.evolve()
    assert "note<note" in reads(world)["t"]
    assert "remark" not in reads(world)["t"]


def test_without_ids_the_name_decides(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.run(T)
    world.evolve()
    switch(world, Switch("main", "t", "note", enabled=False))
    assert reads(world) == {"t": "id<id email<email"}
    world.run("DROP TABLE t", T)
    assert reads(world) == {"t": "id<id email<email"}
