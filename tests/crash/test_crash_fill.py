"""kill -9 while a column is filled, then a sync: all rows have their value, no newer one was overwritten."""

from __future__ import annotations

import pytest
from crash_cases import FILL
from crash_checks import check_converged, check_cursor
from crash_world import World, first_load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of pyspark's collect()
]

CHANGE = """
ALTER TABLE orders ADD COLUMN region text DEFAULT 'north';
CREATE TABLE tag (id int PRIMARY KEY, word text);
UPDATE orders SET region = 'south', updated_at = '2026-02-01Z'::timestamptz + id * interval '1 second' WHERE id = 9;
"""
LATER = "UPDATE orders SET region = NULL, updated_at = '2026-03-01Z' WHERE id IN (3, 9)"


@pytest.mark.sampled
@pytest.mark.parametrize("point", FILL)
def test_fill(world: World, point: str) -> None:
    """Between the two, rows that the dead run has read are set to NULL."""
    world.edit("connections:", "policies: {fills: {preset: allow_all, backfill: column}}\nconnections:")
    world.edit("  crash:\n", "  crash:\n    policy: fills\n")
    first_load(world)
    world.execute(CHANGE)
    world.killed_at(point, "sync")
    found = world.read("orders")
    assert found is not None
    regions = {row[found.columns.index("id")]: row[found.columns.index("region")] for row in found.rows}
    assert set(regions) == set(range(1, 301))
    assert set(regions.values()) <= {None, "north", "south"}
    assert regions[9] == "south"
    check_cursor(world)
    world.execute(LATER)
    assert world.sync().status == "done"
    check_converged(world)
