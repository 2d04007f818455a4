"""kill -9 while rows are repaired, then a repair: the table is that of its source."""

from __future__ import annotations

import pytest
from crash_cases import REPAIR
from crash_checks import check_converged
from crash_world import World, first_load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of pyspark's collect()
]

UNSEEN = """
UPDATE orders SET note = 'other' WHERE id % 50 = 1;
DELETE FROM orders WHERE id % 60 = 2;
INSERT INTO orders SELECT i, 1, 'late', '2026-01-01Z' FROM generate_series(1001, 1005) i;
"""
"""Changes that no cursor sees."""


@pytest.mark.parametrize("point", REPAIR)
def test_repair(world: World, point: str) -> None:
    """Rows are as before or as the source has them; the same command corrects what is left, and a sync goes on."""
    first_load(world)
    world.execute(UNSEEN)
    words = ("repair", "public.orders", "--yes", "--allow-destructive", "*")
    world.killed_at(point, *words)
    found, before, source = world.read("orders"), world.before["orders"], world.source("orders")
    assert found is not None
    assert found.rows in (before.rows, source.rows)
    assert world.command(*words) == 0, world.said
    for _ in range(2):
        mended = world.read("orders")
        assert mended is not None
        assert mended.rows == source.rows
        assert world.sync().status == "done"
    check_converged(world)
