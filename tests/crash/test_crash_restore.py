"""kill -9 while a table is put back, then a sync: the rows are those of the source again."""

from __future__ import annotations

import pytest
from crash_cases import RESTORE
from crash_checks import check_converged, check_cursor
from crash_world import CHANGE, World, first_load

from instep.sync.operations.restore import savepoints

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of pyspark's collect()
]


def first(world: World) -> str:
    """The oldest snapshot of a table with a cursor that has rows."""
    with world.app() as app:
        _, points = savepoints(app.sync_context("crash"), "public.orders")
        return str(next(p.id for p in reversed(points) if p.rows))


@pytest.mark.parametrize("point", RESTORE)
def test_restore(world: World, point: str) -> None:
    """The table is as before or put back whole; the same command goes on, or completes the record, once."""
    first_load(world)
    world.execute(CHANGE)
    assert world.sync().status == "done"
    words = ("restore", "public.orders", "--snapshot", first(world), "--yes", "--allow-destructive", "*")
    world.killed_at(point, *words)
    check_cursor(world)
    assert world.command(*words) == 0, world.said
    assert world.command(*words) == 3, world.said
    with world.app() as app:
        events = app.store.events.latest(connection="crash", limit=1000)
    assert [e.type for e in events].count("table.restored") == 1
    assert world.sync().status == "done"
    check_converged(world)
