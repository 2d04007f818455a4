"""Names that the settings give to tables and columns of the destination, before and after they are loaded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from instep.schema.planning.naming import CustomNames
from instep.sync.context import SyncContext
from sync_world import MakeWorld, World

KINDS = pytest.mark.parametrize("kind", ["postgres", "sqlite"])
TABLES = "CREATE TABLE t (id int PRIMARY KEY, name text, at int)", "CREATE TABLE u (id int PRIMARY KEY, name text)"
ROWS = "INSERT INTO t VALUES (1, 'a', 1)", "INSERT INTO u VALUES (2, 'b')"


@dataclass
class Named(World):
    """`given`: by table of the source."""

    given: dict[str, CustomNames] = field(default_factory=dict)

    @property
    def context(self) -> SyncContext:
        context = super().context
        return replace(
            context, naming=replace(context.naming, custom_names=lambda ref: self.given.get(ref[1], CustomNames()))
        )


def begun(world: World, **given: CustomNames) -> Named:
    """Two tables, loaded once under these names."""
    made = Named(world.case, world.folder, given=given)
    made.store.close()
    made.store = world.store
    made.run(*TABLES, *ROWS)
    report = made.sync()
    assert report.status == "done", report.tables
    return made


def steps(world: World) -> list[str]:
    return [s.text for s in world.preview().plan.steps]


def notes(world: World) -> str:
    return "; ".join(world.sync().notes)


@KINDS
def test_a_new_table_has_its_given_names(make_world: MakeWorld, kind: str) -> None:
    world = begun(make_world(kind), t=CustomNames("orders", {"name": "title", "at": "_instep_id"}))
    assert world.tables() == {"t": "orders", "u": "u"}
    assert world.rows_at(("shop", "orders"), "id", "title", "src__instep_id") == [(1, "a", 1)]
    assert (steps(world), world.differing()) == ([], {})


@KINDS
def test_a_loaded_table_is_renamed_with_its_rows(make_world: MakeWorld, kind: str) -> None:
    world = begun(make_world(kind))
    world.given["t"] = CustomNames("orders", {"name": "title"})
    assert steps(world) == ["table shop.t renamed to shop.orders", "column shop.orders.name renamed to title"]
    world.run("INSERT INTO t VALUES (2, 'c', 2)")
    report = world.sync()
    assert (report.status, world.tables()["t"]) == ("done", "orders")
    assert world.rows_at(("shop", "orders"), "id", "title") == [(1, "a"), (2, "c")]
    assert (steps(world), world.differing()) == ([], {})
    world.given["t"] = CustomNames("t", {"name": "name"})
    world.sync()
    assert world.rows_at(("shop", "t"), "id", "name") == [(1, "a"), (2, "c")]


def test_names_that_are_given_crosswise(world: World) -> None:
    made = begun(world)
    made.given = {"t": CustomNames("u", {"id": "name", "name": "id"}), "u": CustomNames("t")}
    made.sync()
    assert made.tables() == {"t": "u", "u": "t"}
    assert (made.rows_at(("shop", "u"), "name", "id"), made.rows_at(("shop", "t"), "id")) == ([(1, "a")], [(2,)])
    assert (steps(made), made.differing()) == ([], {})


def test_what_has_a_name_keeps_it(world: World) -> None:
    made = begun(world)
    made.given = {"t": CustomNames("U", {"name": "ID", "at": "since"})}
    said = notes(made)
    assert ("it stays t: the name U is taken" in said, "name stays name: the name ID is taken" in said) == (True, True)
    assert made.tables() == {"t": "t", "u": "u"}
    assert made.rows_at(("shop", "t"), "id", "name", "since") == [(1, "a", 1)]
    made.given["u"] = CustomNames("old_u")
    made.sync()
    assert made.tables() == {"t": "U", "u": "old_u"}


def test_new_tables_that_are_given_one_name_wait_for_a_person(world: World) -> None:
    made = Named(world.case, world.folder, given={"t": CustomNames("all"), "u": CustomNames("all")})
    made.run(*TABLES, *ROWS)
    made.sync()
    made.sync()
    assert (made.tables(), len(made.reviews("open"))) == ({"t": "all"}, 2)
    assert "u would be stored as all_" in "; ".join(made.reviews("open"))
    made.close()


def test_a_given_name_outlives_a_rename_at_the_source(world: World) -> None:
    made = begun(world, t=CustomNames("orders"))
    made.run("ALTER TABLE t RENAME TO s", "INSERT INTO s VALUES (3, 'd', 3)")
    report = made.sync()
    assert (report.status, made.tables()["s"]) == ("done", "orders")
    assert made.rows_at(("shop", "orders"), "id") == [(1,), (3,)]
    made.given["s"] = CustomNames("sales")
    made.sync()
    assert made.tables()["s"] == "sales"
