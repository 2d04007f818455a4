"""Random changes with DDL between them, beside the syncs and across their crashes: in the end all is equal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import one_sync
import pytest
from binlog_changes import BinlogChanges
from binlog_world import grant
from followed import Followed
from log_changes import LogChanges
from random_changes import Changes

from instep import crash
from instep.crash import Crashed
from mariadb import MariaDatabase
from postgres_server import Database

pytestmark = pytest.mark.server

POINTS = ("log.saved", "log.released", "sync.staged", "sync.noted", "sync.planned", "sync.accepted.after")
SEEDS = [
    pytest.param(kind, seed, marks=[pytest.mark.slow] * (seed == 2))
    for kind in ("postgres", "mariadb")
    for seed in (1, 2)
]


def changes_of(database: Database | MariaDatabase, seed: int, ddl: float) -> Changes:
    kind = BinlogChanges if isinstance(database, MariaDatabase) else LogChanges
    return kind(database, seed, ddl)


@pytest.mark.sampled
@pytest.mark.parametrize(("either", "seed"), SEEDS, indirect=["either"])
def test_changes_beside_the_syncs(either: Followed, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = either
    changes = changes_of(world.database, seed, ddl=0.01)
    world.run(*changes.SETUP)
    world.log.update({"messages": 150} if seed == 2 else {})
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


KILLED = (
    "sync.accepted.after", "sync.staged", "sql.commit.before@2", "sync.commit.after", "log.saved", "log.released",
    "sync.noted", "sql.commit.before", "sync.planned", "sync.verified",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["database", "mariadb"])
def test_a_hundred_thousand_changes_and_ten_kills(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    database: Database | MariaDatabase = request.getfixturevalue(kind)
    if isinstance(database, MariaDatabase):
        grant(database)
    changes = changes_of(database, 7, ddl=0.001)
    world = one_sync.world_in(database, tmp_path)
    world.run(*changes.SETUP)
    changes.run(2_000)
    killed = 0
    for point in ("", *KILLED):
        beside = threading.Thread(target=changes.run, args=(9_800,))
        beside.start()
        killed += one_run(database, tmp_path, point) == -signal.SIGKILL
        beside.join()
    assert changes.made >= 100_000
    assert killed == len(KILLED)
    for _ in range(1 if world.case.table_ids else 2):
        assert one_run(database, tmp_path, "") == 0
    assert world.differing() == {}
    world.close()


def one_run(database: Database | MariaDatabase, folder: Path, point: str) -> int:
    """A sync that is killed at a point ("": at none); its exit code."""
    tests = Path(__file__).parents[1]
    env = {**os.environ, **one_sync.login(database), "PYTHONPATH": f"{tests}{os.pathsep}{tests / 'log'}"}
    env[crash.VARIABLE] = f"{point}=kill" if point else ""
    command = [sys.executable, str(tests / "log" / "one_sync.py"), str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stdout + done.stderr
    return done.returncode
