"""Names of tables that people get wrong: refused before anything is done."""

from __future__ import annotations

import pytest

from instep.errors import InstepError
from instep.schema.catalog.catalog import Catalog
from instep.schema.selection.selection import Selection, patterns
from sync_world import MakeWorld, preset


@pytest.mark.sampled
@pytest.mark.parametrize("wanted", [{}, {"drop_retained": True}], ids=str)
def test_a_wrong_name_is_refused_before_anything_is_accepted(make_world: MakeWorld, wanted: dict[str, bool]) -> None:
    world = make_world("sqlite", selection=Selection(exclude_tables=patterns(["*.hidden"])))
    world.run(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("orders", "hidden")))
    for name, hint in (("main.order", "did you mean main.orders?"), ("main.hidden", "")):
        with pytest.raises(InstepError, match=rf"syncs no table {name}(\n|$)") as error:
            world.sync(tables=frozenset({name, "main.orders"}), **wanted)
        assert hint in error.value.hint
        assert (world.store.accepted.latest("shop"), world.reviews()) == (None, {})
        assert world.destination.schema.inspect([("shop", "orders")]) == Catalog()
    assert [r.status for r in world.store.runs.history("shop")] == ["failed", "failed"]
    assert world.statuses(world.sync(tables=frozenset({"main.orders"}))) == {"orders": "done"}


def test_a_table_that_waits_is_no_wrong_name(make_world: MakeWorld) -> None:
    """Its review is there for whoever is told that it is not synced."""
    world = make_world("sqlite", policy=preset("approve"))
    world.run("CREATE TABLE u (id int PRIMARY KEY)")
    world.evolve()
    world.run("CREATE TABLE t (id int PRIMARY KEY)")
    with pytest.raises(InstepError, match=r"syncs no table main\.t"):
        world.sync(tables=frozenset({"main.t"}))
    assert world.reviews("open") == {"table t added (1 column)": "review"}
