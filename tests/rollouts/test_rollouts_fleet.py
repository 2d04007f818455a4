"""Many real connections: some fail, a process is killed, and nobody is missed or done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from real_fleet import RealFleet

from instep.bootstrap import App
from instep.control.rollouts import queued
from instep.control.rollouts.create import RolloutOrder, create, draft
from instep.control.rollouts.flow import Rolling
from instep.control.rollouts.gates import gates
from instep.control.rollouts.selections import SelectionPatch
from instep.control.rollouts.waves import ConnectionGroup
from instep.crash import VARIABLE
from instep.model import Member
from instep.operations.immediate.rollouts import SIZES
from instep.sync.runs import InProcess

pytestmark = [pytest.mark.drawn(5), pytest.mark.slow, pytest.mark.timeout(3600)]
COUNT = int(os.environ.get("INSTEP_FLEET", "40"))
"""Real runs; 500 connections with a test's runner are in test_rollouts_flow.py."""
ADVANCE = "from instep.cli.main import run; run()"


def loaded(folder: Path, capsys: pytest.CaptureFixture[str], count: int) -> RealFleet:
    fleet = RealFleet(folder, count, capsys)
    with fleet.open() as app:
        runs = InProcess(app.sync_context, app.engine)
        assert all(runs.sync(name, "first", measured=False).ok for name in fleet.names)
        fleet.change()
        assert all(runs.detect(name, "seen").ok for name in fleet.names)
    return fleet


def syncs(fleet: RealFleet) -> Counter[str]:
    with fleet.open() as app:
        return Counter(r.connection for r in app.store.runs.history(kind="sync", limit=100_000))


def test_one_in_twenty_fails_and_resume_touches_only_those(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = loaded(tmp_path, capsys, COUNT)
    broken = fleet.names[19::20]
    for name in broken:
        fleet.break_(name)
    told: list[Member] = []
    with fleet.open() as app:
        patch = SelectionPatch(app.project, app.store, (("on", "main.refunds"),))
        order = RolloutOrder(patch, ConnectionGroup(tags=("shard",)), SIZES, gates(["failed=10%"]))
        made = create(app.store, draft(order, fleet.names, "ann"))
        rolling = Rolling(app.store, patch, InProcess(app.sync_context, app.engine), "ann", told.append)
        ended = rolling.advance(made.id, every=True)
        assert ended.status == "partial"
        assert Counter(m.status for m in told) == {"done": COUNT - len(broken), "failed": len(broken)}
        failed = app.store.rollouts.members(made.id, statuses=("failed",))
        assert sorted(m.connection for m in failed) == broken
        assert all(f"{m.connection}.db does not exist" in m.error for m in failed)
        for name in broken:
            fleet.mend(name)
        told.clear()
        assert rolling.resume(made.id).status == "done"
        assert sorted(m.connection for m in told) == broken
    assert all(fleet.rows(name, "refunds") for name in (*broken, *fleet.names[::50]))
    ran = syncs(fleet)
    assert {ran[name] for name in fleet.names if name not in broken} == {2}, "the first load, and one for the rollout"
    assert {ran[name] for name in broken} <= {2, 3}


def test_a_process_that_is_killed_again_and_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = loaded(tmp_path, capsys, 20)
    fleet.json("rollout", "create", "--on", "main.refunds", "--tag", "shard", "--waves", "3,30%")
    words = [sys.executable, "-c", ADVANCE, "--project", str(fleet.folder), "rollout", "advance", "--all"]
    for point in ("rollout.begun", "rollout.ran@3", "rollout.begun@4", "rollout.ran@5"):
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, VARIABLE: f"{point}=stop"}
        )
        while state(process.pid) != "T":
            assert process.poll() is None, "it has to wait there for its end"
            time.sleep(0.01)
        with fleet.open() as app:
            [made] = app.store.rollouts.find()
            assert at_work(app.store.rollouts.members(made.id), 0)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    fleet.json("rollout", "advance", "--all")
    found = fleet.json("rollout", "status", "--all")
    assert found["counts"] == {"done": 20}
    assert all(fleet.rows(name, "refunds") for name in fleet.names)
    assert [c["attempt"] for c in found["connections"]] == [1] * 20


def test_workers_that_are_killed_again_and_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = loaded(tmp_path, capsys, 6)
    id = fleet.json("rollout", "create", "--on", "main.refunds", "--tag", "shard", "--waves", "2")["rollout"]["id"]
    words = [sys.executable, "-c", ADVANCE, "--project", str(fleet.folder), "worker", "--lanes", "1"]
    with fleet.open() as app:
        queued.advance(app.store, id, "ann", every=True)
        for done in (0, 3):
            worker = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while under_way(app, id) and not at_work(app.store.rollouts.members(id), done):
                assert worker.poll() is None
                time.sleep(0.01)
            worker.send_signal(signal.SIGKILL)
            assert worker.wait() == -signal.SIGKILL
        last = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while under_way(app, id):
            assert last.poll() is None
            time.sleep(0.1)
        last.terminate()
        assert last.wait() == 0
    found = fleet.json("rollout", "status", "--all")
    assert (found["rollout"]["status"], found["counts"]) == ("done", {"done": 6})
    assert [c["attempt"] for c in found["connections"]] == [1] * 6, "no run was failed by a worker's death"
    assert all(fleet.rows(name, "refunds") for name in fleet.names)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def under_way(app: App, rollout: str) -> bool:
    return app.store.rollouts.get(rollout).status in ("ready", "running")


def at_work(members: list[Member], done: int) -> bool:
    """In the middle of a run, with so many behind it."""
    statuses = Counter(m.status for m in members)
    return statuses["done"] >= done and statuses["running"] > 0
