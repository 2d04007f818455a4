"""Comments of the source's tables and columns are those of the destination's, also when they change later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from sync_world import World

DESTINATIONS: dict[str, Callable[[str], Any]] = {
    "iceberg": lambda folder: IcebergDestination(IcebergConfig.resolved(name="other", warehouse=f"{folder}/other")),
    "delta": lambda folder: DeltaDestination(DeltaConfig.resolved(name="other", warehouse=f"{folder}/delta")),
    "duckdb": lambda folder: DuckDbDestination(DuckDbConfig.resolved(name="other", path=f"{folder}/x.duckdb")),
}


def comments(world: World) -> list[str | None]:
    """The table's, then its columns'."""
    [table] = world.destination.schema.inspect([("shop", "t")]).tables
    return [table.comment, *(c.comment for c in table.columns if c.alias)]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", DESTINATIONS)
def test_comments_are_carried_over_and_followed(world: World, kind: str) -> None:
    world.destination = DESTINATIONS[kind](str(world.folder))
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, a text)", "INSERT INTO t VALUES (1, 'x')",
        "COMMENT ON TABLE t IS 'it''s \"orders\"'", "COMMENT ON COLUMN t.a IS 'öne\nline more'",
    )  # fmt: skip
    assert world.sync().status == "done"
    assert comments(world) == ['it\'s "orders"', None, "öne\nline more"]
    world.run(
        "COMMENT ON TABLE t IS NULL", "COMMENT ON COLUMN t.id IS 'key'", "COMMENT ON COLUMN t.a IS 'new'",
        "ALTER TABLE t ADD b int", "COMMENT ON COLUMN t.b IS 'later'",
    )  # fmt: skip
    assert world.sync().status == "done"
    assert comments(world) == [None, "key", "new", "later"]
    assert world.preview().plan.steps == ()
