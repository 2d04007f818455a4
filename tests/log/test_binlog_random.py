"""Random changes with DDL between them, beside the syncs and across their crashes: in the end all is equal."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import one_binlog_sync
import pytest
from binlog_changes import SETUP, BinlogChanges
from binlog_world import BinlogWorld, grant
from test_log_random import KILLED, POINTS, run_killed

from instep import crash
from instep.crash import Crashed
from mariadb import MariaDatabase

pytestmark = pytest.mark.server


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_changes_beside_the_syncs(binlog_world: BinlogWorld, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = binlog_world
    assert world.database is not None
    world.run(*SETUP)
    world.log.update({"messages": 150} if seed == 2 else {})
    changes = BinlogChanges(world.database, seed, ddl=0.01)
    changes.run(200)
    for number in range(4):
        beside = threading.Thread(target=changes.run, args=(150,))
        beside.start()
        try:
            monkeypatch.setenv(crash.VARIABLE, f"{POINTS[(number + seed) % len(POINTS)]}=raise" if number % 2 else "")
            world.sync()
        except Crashed:
            pass
        finally:
            beside.join()
    monkeypatch.setenv(crash.VARIABLE, "")
    report = world.settled()
    assert set(world.statuses(report).values()) == {"done"}, report
    assert world.differing() == {}, report


@pytest.mark.slow
def test_a_hundred_thousand_changes_and_ten_kills(mariadb: MariaDatabase, tmp_path: Path) -> None:
    grant(mariadb)
    changes = BinlogChanges(mariadb, 7, ddl=0.001)
    world = one_binlog_sync.world_in(mariadb, tmp_path)
    world.run(*SETUP)
    changes.run(2_000)
    killed = 0
    for point in ("", *KILLED):
        beside = threading.Thread(target=changes.run, args=(9_800,))
        beside.start()
        killed += run_killed("one_binlog_sync", one_binlog_sync.login(mariadb), tmp_path, point) == -signal.SIGKILL
        beside.join()
    assert changes.made >= 100_000
    assert killed == len(KILLED)
    for _ in range(2):
        assert run_killed("one_binlog_sync", one_binlog_sync.login(mariadb), tmp_path, "") == 0
    assert world.differing() == {}
    world.close()
