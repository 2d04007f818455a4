"""A run that stands still while a later one takes over: when it goes on, it is refused and changes nothing."""

from __future__ import annotations

import os
import signal

import psutil
import pytest
from crash_cases import ZOMBIE
from crash_checks import check_converged
from crash_world import CHANGE, World, first_load, wait_stopped, wait_until

from instep.errors import RunInProgress

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of pyspark's collect()
]

LATER = """
CREATE TABLE late (id int PRIMARY KEY, word text);
INSERT INTO late VALUES (1, 'one'), (2, 'two');
UPDATE item SET title = 'later' WHERE id = 5;
UPDATE orders SET state = 'later', updated_at = '2026-04-01Z' WHERE id = 5;
DELETE FROM item WHERE id = 6;
INSERT INTO log VALUES ('2026-04-01Z', 'later', 1);
"""


ONE_BY_ONE = ("sync.commit", "merge")
"""Several tables are there at once; a stopped process keeps the catalog file's lock if it stands in a commit."""


@pytest.mark.sampled
@pytest.mark.parametrize("point", ZOMBIE)
def test_a_late_run_is_refused(world: World, point: str) -> None:
    first_load(world)
    world.execute(CHANGE)
    one = ["--table", "public.orders"] if point.startswith(ONE_BY_ONE) else []
    late = world.stopped_at(point, "sync", *one)
    with pytest.raises(RunInProgress):
        world.sync()
    world.take_lease()
    world.execute(LATER)
    assert world.sync().status == "done"
    lake, control = world.pointers(), world.control()
    code = world.go_on(late)
    assert world.pointers() == lake, world.said
    assert world.control() == control
    assert code == 5, f"exit code {code}:\n{world.said}"
    assert "later" in world.said
    check_converged(world)
    assert world.sync().status == "done"
    check_converged(world)


@pytest.mark.drawn(1)
def test_nothing_runs_on_without_its_driver(world: World) -> None:
    """The JVM and its workers end with the process that started them."""
    first_load(world)
    world.execute(CHANGE)
    world.on_spark()
    process = world.start("sync", crash="sync.staged=stop")
    wait_stopped(process, world)
    others = psutil.Process(process.pid).children(recursive=True)
    assert any("java" in p.name() for p in others)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(300)
    wait_until(lambda: not any(_runs(p) for p in others), 300, "the JVM and its workers to end")


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
