"""Names of tables that people get wrong: refused before anything is done."""

from __future__ import annotations

import pytest

from instep.errors import InstepError
from instep.schema.selection import Selection, patterns
from instep.schema.table import Catalog
from sync_world import MakeWorld


@pytest.mark.parametrize("wanted", [{}, {"drop_retained": True}], ids=str)
def test_a_wrong_name_is_refused_before_anything_is_accepted(make_world: MakeWorld, wanted: dict[str, bool]) -> None:
    world = make_world("sqlite", engine="inline", selection=Selection(exclude_tables=patterns(["*.hidden"])))
    world.run(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("orders", "hidden")))
    for name, hint in (("main.order", "did you mean main.orders?"), ("main.hidden", "")):
        with pytest.raises(InstepError, match=rf"syncs no table {name}(\n|$)") as error:
            world.sync(tables=frozenset({name, "main.orders"}), **wanted)
        assert hint in error.value.hint
        assert (world.store.accepted.latest("shop"), world.reviews()) == (None, {})
        assert world.destination.inspect([("shop", "orders")]) == Catalog()
    assert [r.status for r in world.store.runs.history("shop")] == ["failed", "failed"]
    assert world.statuses(world.sync(tables=frozenset({"main.orders"}))) == {"orders": "done"}
