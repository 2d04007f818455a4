from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import claimers
import pytest
from sqlalchemy import select
from store_world import START, Clock

from instep.errors import Conflict, Fenced, InstepError, RunInProgress
from instep.events import RunEnded
from instep.model import Run
from instep.store.engine import owner
from instep.store.engine.owner import Owner, this_process
from instep.store.store import Store
from instep.store.tables.catalogs import runs
from instep.store.work.runs import Heartbeat

SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def child(verb: str, url: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process running claimers.<verb>, and the first line that it said."""
    here = Path(__file__).parent
    command = [sys.executable, str(here / "claimers.py"), verb, url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_claim_answers_a_running_run(store: Store) -> None:
    run = store.runs.claim("c", "sync", "ana", {"tables": 2})
    assert (run.connection, run.kind, run.status, run.fence, run.started) == ("c", "sync", "running", 1, START)
    assert run.detail == {"tables": 2}
    assert run.id.startswith("r-20260301-120000-")
    assert store.runs.running("c") == run
    assert store.runs.get(run.id) == store.runs.get(run.id[:-1]) == run
    store.runs.check(run)


def test_fences_rise_per_connection(store: Store) -> None:
    for expected in (1, 2, 3):
        run = store.runs.claim("c", "detect")
        assert run.fence == expected
        store.runs.finish(run, "done")
    assert store.runs.claim("other", "detect").fence == 1


def test_a_living_run_is_not_taken_over(store: Store) -> None:
    run = store.runs.claim("c", "backfill")
    with pytest.raises(RunInProgress) as refused:
        store.runs.claim("c", "sync")
    assert refused.value.exit_code == 5
    said = refused.value.message
    assert said.startswith("connection c: a backfill is running since 2026-03-01 12:00:00 UTC")
    assert f"process {os.getpid()}" in said
    assert run.id in said
    assert store.connections.get("c").fence == 1  # type: ignore[union-attr]


def test_an_expired_lease_is_taken_over_and_the_old_run_is_fenced(store: Store, clock: Clock) -> None:
    old = store.runs.claim("c", "sync")
    clock.forward(50)
    store.runs.heartbeat(old)
    clock.forward(59)
    with pytest.raises(RunInProgress):
        store.runs.claim("c", "sync")
    clock.forward(1)
    new = store.runs.claim("c", "sync")
    assert new.fence == 2
    failed = store.runs.get(old.id)
    assert (failed.status, failed.ended) == ("failed", clock())
    assert failed.error == "interrupted: no sign of life since 12:00:50 UTC"
    for late in (store.runs.heartbeat, store.runs.check, lambda run: store.runs.finish(run, "done")):
        with pytest.raises(Fenced, match=f"run {old.id} was taken over"):
            late(old)
    assert store.runs.running("c") == new
    assert [e.event for e in store.events.after()] == [RunEnded("c", old.id, "sync", "failed", failed.error)]


def test_an_ended_run_cannot_end_again(store: Store) -> None:
    run = store.runs.claim("c", "sync")
    store.runs.finish(run, "failed", "lost")
    with pytest.raises(Fenced):
        store.runs.finish(run, "done")
    assert store.runs.running("c") is None


def test_an_unknown_run(store: Store) -> None:
    with pytest.raises(InstepError, match="no run 'r-%' is known"):
        store.runs.get("r-%")


def test_a_killed_owner_is_taken_over_at_once(store: Store, url: str) -> None:
    with child("hold", url) as (process, run_id):
        with pytest.raises(RunInProgress, match=f"a backfill is running .*process {process.pid} on .*{run_id}"):
            store.runs.claim("c", "sync")
        process.send_signal(signal.SIGKILL)
        process.wait()
        run = store.runs.claim("c", "sync")
        assert run.fence == 2
        assert store.runs.get(run_id).error == f"interrupted: process {process.pid} has ended"
        assert [e.data["run"] for e in store.events.after(types=["run.ended"])] == [run_id]


def test_a_run_whose_claim_is_refused_has_not_ended(store: Store) -> None:
    run = store.runs.claim("c", "sync")
    for _ in range(2):
        with pytest.raises(RunInProgress):
            store.runs.claim("c", "sync")
    assert store.events.after() == []
    store.runs.heartbeat(run)


def test_what_a_killed_owner_has_left_is_known(store: Store, url: str) -> None:
    with child("hold", url) as (process, run_id):
        store.runs.claim("mine", "sync")
        assert store.runs.orphans() == []
        process.kill()
        process.wait()
        (left,) = store.runs.orphans()
        assert left.id == run_id
        store.runs.finish(left, "failed", "its process has ended")
        assert store.runs.orphans() == []


def test_a_stopped_owner_is_alive(store: Store, url: str) -> None:
    with child("hold", url) as (process, _):
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(RunInProgress):
            store.runs.claim("c", "sync")


def test_a_zombie_is_gone(store: Store, url: str) -> None:
    with child("hold", url) as (process, _):
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert store.runs.claim("c", "sync").fence == 2


def test_processes_that_claim_at_once_never_share(any_url: str, tmp_path: Path) -> None:
    Store(any_url).close()
    workers, rounds = 3, 8
    barrier = SPAWN.Barrier(workers)
    answers = [tmp_path / f"answers{n}" for n in range(workers)]
    arguments = [(any_url, barrier, rounds, str(file)) for file in answers]
    processes = [SPAWN.Process(target=claimers.claim_at_once, args=a) for a in arguments]
    _run_all(processes)
    by_round = list(zip(*(file.read_text().split() for file in answers), strict=True))
    assert len(by_round) == rounds
    winners = [[answer for answer in said if answer != "busy"] for said in by_round]
    assert winners == [[str(n)] for n in range(1, rounds + 1)]


def test_processes_that_open_a_new_database_at_once(any_url: str) -> None:
    barrier = SPAWN.Barrier(3)
    _run_all([SPAWN.Process(target=claimers.open_at_once, args=(any_url, barrier)) for _ in range(3)])


def test_read_then_write_loses_nothing_between_processes(url: str) -> None:
    Store(url).close()
    _run_all([SPAWN.Process(target=claimers.count_up, args=(url, 20)) for _ in range(2)])
    with Store(url) as store:
        assert len(store.accepted.history("c")) == 40


def _run_all(processes: list) -> None:  # type: ignore[type-arg]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        assert process.exitcode == 0


def test_a_lock_that_stays_is_told(url: str) -> None:
    Store(url).close()
    with child("hold_lock", url) as (_, said), Store(url, busy=0.2) as store:
        assert said == "locked"
        assert store.pauses.active("c") == []  # readers do not wait
        with pytest.raises(Conflict, match=r"state\.db stayed locked") as error:
            store.pauses.pause("c", "mine")
        assert "another instep process is writing" in error.value.hint


class TestOwner:
    def test_this_process_lives(self) -> None:
        assert not this_process().is_ended

    def test_another_hosts_process_is_never_gone(self) -> None:
        assert not Owner("elsewhere", 1 << 22, "1").is_ended

    def test_a_reused_process_id_is_another_process(self) -> None:
        assert replace(this_process(), started="1").is_ended

    def test_a_process_of_somebody_else_lives(self) -> None:
        assert not Owner(this_process().host, 1).is_ended

    def test_without_proc_the_process_id_decides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(owner, "_stat", lambda pid: ("", ""))
        assert not replace(this_process(), started="").is_ended


def leased(store: Store, run: Run) -> datetime:
    """Up to when it is a run's own."""
    with store._db.read() as transaction:
        return transaction.execute(select(runs.c.lease_until).where(runs.c.id == run.id)).scalar_one()


class TestHeartbeat:
    def test_it_keeps_the_lease(self, url: str, clock: Clock) -> None:
        """By a clock that stands still while the beat is waited for."""
        with Store(url, now=clock, lease=timedelta(milliseconds=300)) as store:
            run = store.runs.claim("c", "sync")
            with Heartbeat(store.runs, run) as beat:
                for _ in range(3):
                    clock.forward(0.2)
                    while leased(store, run) < clock() + store.runs.lease:
                        threading.Event().wait(0.01)
                with pytest.raises(RunInProgress):
                    store.runs.claim("c", "sync")
                beat.check()
                assert not beat.is_lost
            store.runs.finish(run, "done")

    def test_it_tells_of_a_take_over(self, url: str, clock: Clock) -> None:
        with Store(url, now=clock, lease=timedelta(milliseconds=60)) as store:
            run = store.runs.claim("c", "sync")
            clock.forward(1)
            later = store.runs.claim("c", "sync")
            with Heartbeat(store.runs, run) as beat:
                beat._thread.join(300)
                with pytest.raises(Fenced, match=run.id):
                    beat.check()
            assert store.runs.running("c") == later


def test_several_runs_are_found_by_their_whole_ids(store: Store) -> None:
    first = store.runs.claim("a", "sync")
    second = store.runs.claim("b", "sync")
    found = store.runs.get_many({first.id, second.id, first.id[:-1], "r-none"})
    assert {id: run.connection for id, run in found.items()} == {first.id: "a", second.id: "b"}
    assert store.runs.get_many(()) == {}
