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
from log_changes import SETUP, Changes
from log_world import LogWorld

from instep import crash
from instep.crash import Crashed
from postgres_server import Database

pytestmark = pytest.mark.server

POINTS = ("log.saved", "log.released", "sync.staged", "sync.noted", "sync.planned", "sync.accepted.after")


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_changes_beside_the_syncs(world: LogWorld, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.database is not None
    world.run(*SETUP)
    world.log.update({"messages": 150} if seed == 2 else {})
    changes = Changes(world.database, seed, ddl=0.01)
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
    report = world.sync()
    assert set(world.statuses(report).values()) == {"done"}, report
    assert world.differing() == {}, report


KILLED = (
    "sync.accepted.after", "sync.staged", "duckdb.commit.before@2", "sync.commit.after", "log.saved", "log.released",
    "sync.noted", "duckdb.commit.before", "sync.planned", "sync.verified",
)  # fmt: skip


@pytest.mark.slow
def test_a_hundred_thousand_changes_and_ten_kills(database: Database, tmp_path: Path) -> None:
    changes = Changes(database, 7, ddl=0.001)
    world = one_sync.world_in(database, tmp_path)
    world.run(*SETUP)
    changes.run(2_000)
    killed = 0
    for point in ("", *KILLED):
        beside = threading.Thread(target=changes.run, args=(9_800,))
        beside.start()
        killed += one_run(database, tmp_path, point) == -signal.SIGKILL
        beside.join()
    assert changes.made >= 100_000
    assert killed == len(KILLED)
    assert one_run(database, tmp_path, "") == 0
    assert world.differing() == {}
    world.close()


def one_run(database: Database, folder: Path, point: str) -> int:
    """A sync that is killed at a point ("": at none); its exit code."""
    return run_killed("one_sync", one_sync.login(database), folder, point)


def run_killed(script: str, login: dict[str, str], folder: Path, point: str) -> int:
    tests = Path(__file__).parents[1]
    env = {**os.environ, **login, "PYTHONPATH": f"{tests}{os.pathsep}{tests / 'log'}"}
    env[crash.VARIABLE] = f"{point}=kill" if point else ""
    command = [sys.executable, str(tests / "log" / f"{script}.py"), str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stdout + done.stderr
    return done.returncode
