"""Workers and their lanes: warm, watched, stopped with grace, and killed at any moment."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from worker_world import Shop, job, kill, lanes_of, until

from instep.control import detector, queue
from instep.model import Job

SLOW = "sync.snapshot=sleep:600"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync ends in no test."""
    monkeypatch.setenv("INSTEP_CRASH", SLOW)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life come often, so that nobody waits for what they bring."""
    monkeypatch.setattr("instep.worker.worker.BEAT", 0.3)


def ask(shop: Shop, kind: str = "sync", name: str = "shop", attempts: int | None = None) -> Job:
    with shop.store() as store:
        return queue.ask(store, name, kind, "ann", attempts=attempts).job  # type: ignore[arg-type]


def begun(shop: Shop, asked: Job) -> None:
    """The sync has claimed its run and works."""

    def running() -> bool:
        with shop.store() as store:
            return bool(store.runs.running(asked.connection)) and store.jobs.get(asked.id).status == "running"

    until(running)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_draining_does_all_that_waits(shops: Shop) -> None:
    jobs = [ask(shops, kind, name) for name in shops.names for kind in ("sync", "detect", "test_connection")]
    shops.worker().run(drain=True)
    assert {job(shops, one.id).status for one in jobs} == {"done"}
    assert [shops.rows("select count(*) from item".replace("item", f"{n}.item"), n) for n in shops.names] == [
        [(2,)]
    ] * 3
    with shops.store() as store:
        assert store.workers.live() == []


def test_one_process_does_one_after_the_other_and_is_replaced_in_time(shop: Shop) -> None:
    jobs = []
    with shop.store() as store:
        for number in range(5):
            jobs.append(queue.ask(store, "shop", "test_connection", "ann", {"source": "shop_db", "n": number}).job)
    worker, pids = shop.worker(lanes=1, runs=3), set()
    save = worker._save
    worker._save = lambda lane, ended: (pids.add(lane.pid), save(lane, ended))[1]  # type: ignore[method-assign]
    worker.run(drain=True)
    assert len(pids) == 2
    assert {job(shop, one.id).status for one in jobs} == {"done"}


def test_schedules_bring_work(shop: Shop) -> None:
    with shop.working(), shop.store() as store:
        until(lambda: store.schedules.all("shop"))
        (one,) = store.schedules.all("shop")
        store.schedules.put(replace(one, next_due=datetime(2020, 1, 1, tzinfo=UTC)))
        until(lambda: store.jobs.find(kind="detect", status=["done"]))
        assert store.jobs.find()[0].why == "schedule"


def test_somebody_who_waits_is_answered_while_all_lanes_work(shops: Shop, slow: None) -> None:
    with shops.working(lanes=1, grace=0):
        asked = ask(shops, name="a")
        begun(shops, asked)
        with shops.app() as app:
            found = detector.ask(app.store, app.project, "b", "bob").job
            until(lambda: app.store.jobs.get(found.id).over)
            ended = app.store.jobs.get(found.id)
        assert ended.result["counts"]["tables"]["new"] == 2
        assert job(shops, asked.id).status == "running"


def test_a_second_sync_once_the_one_that_runs_is_stopped(shop: Shop, slow: None) -> None:
    with shop.working(grace=0), shop.store() as store:
        asked = ask(shop)
        begun(shop, asked)
        store.jobs.cancel(asked.id, "bob")
        again = queue.ask(store, "shop", "sync", "bob")
        assert again.new
        until(lambda: store.jobs.get(asked.id).status == "cancelled")
        until(lambda: store.jobs.get(again.job.id).status == "running")


@pytest.mark.sampled
@pytest.mark.parametrize("timeout", [60.0, 0.0], ids=["it ends by itself", "its lane is killed"])
def test_cancelling_a_running_job(shop: Shop, slow: None, monkeypatch: pytest.MonkeyPatch, timeout: float) -> None:
    """Job and run end together, whether the lane could still say so or not."""
    monkeypatch.setattr("instep.worker.worker.INTERRUPTED", timeout)
    with shop.working(), shop.store() as store:
        asked = ask(shop)
        begun(shop, asked)
        store.jobs.cancel(asked.id, "ann")
        until(lambda: store.jobs.get(asked.id).over)
        ended = store.jobs.get(asked.id)
        assert (ended.status, ended.error) == ("cancelled", "stopped by ann")
        (run,) = store.runs.history("shop")
        assert (ended.run, run.status) == (run.id, "cancelled")
        assert run.ended is not None
        assert [e.data["status"] for e in store.events.latest(types=("run.ended",))] == ["cancelled"]


def test_a_lane_that_dies_takes_one_attempt_with_it(shop: Shop, slow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    process = shop.process("--lanes", "1", "--grace", "0")
    try:
        asked = ask(shop)
        begun(shop, asked)
        (lane,) = lanes_of(process.pid)
        kill(lane)
        until(lambda: job(shop, asked.id).status == "queued")
        again = job(shop, asked.id)
        assert (again.attempt, again.error) == (1, "its process ended with code -9")
        assert again.due > again.created
        with shop.store() as store:
            (run,) = store.runs.history("shop")
        assert (again.run, run.status, run.error) == (run.id, "failed", f"interrupted: {again.error}")
    finally:
        process.terminate()
        assert process.wait(300) == 0


class TestStopping:
    def test_running_jobs_end_within_the_grace_time(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("INSTEP_CRASH", "sync.snapshot=sleep:2")
        with shop.working(grace=200):
            asked = ask(shop)
            begun(shop, asked)
        assert job(shop, asked.id).status == "done"

    def test_others_are_given_back(self, shop: Shop, slow: None, monkeypatch: pytest.MonkeyPatch) -> None:
        process = shop.process("--grace", "1")
        asked = ask(shop)
        begun(shop, asked)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
        given = job(shop, asked.id)
        assert (given.status, given.attempt, given.error) == ("queued", 0, "its worker stopped")
        monkeypatch.delenv("INSTEP_CRASH")
        shop.worker().run(drain=True)
        assert job(shop, asked.id).status == "done"
        assert job(shop, asked.id).attempt == 1

    def test_a_second_signal_ends_it_at_once(self, shop: Shop, slow: None) -> None:
        process = shop.process("--grace", "600", "--lanes", "1")
        asked = ask(shop)
        begun(shop, asked)
        (lane,) = lanes_of(process.pid)
        process.send_signal(signal.SIGTERM)
        with shop.store() as store:
            until(lambda: store.workers.live() == [])
        assert (job(shop, asked.id).status, process.poll()) == ("running", None)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
        assert not alive(lane)
        given = job(shop, asked.id)
        assert (given.status, given.attempt, given.error) == ("queued", 0, "its worker stopped")

    def test_nothing_is_begun_after_it(self, shop: Shop) -> None:
        worker = shop.worker()
        worker.stop()
        asked = ask(shop)
        worker.run()
        assert job(shop, asked.id).status == "queued"


def killed_at_work(shop: Shop) -> Job:
    """The job of a worker that was killed while it ran; its lane has ended as well."""
    process = shop.process("--lanes", "1")
    asked = ask(shop)
    begun(shop, asked)
    (lane,) = lanes_of(process.pid)
    kill(process.pid)
    process.wait()
    until(lambda: not alive(lane))
    return asked


@pytest.mark.slow
class TestKilled:
    def test_lanes_end_with_their_worker_and_another_goes_on(
        self, shop: Shop, slow: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = killed_at_work(shop)
        monkeypatch.delenv("INSTEP_CRASH")
        with shop.working(), shop.store() as store:
            until(lambda: store.jobs.get(asked.id).status == "done")
            assert store.jobs.get(asked.id).attempt == 2
        assert shop.count("count(*)") == (2,)

    @pytest.mark.parametrize("cancelled", [False, True])
    def test_draining_does_what_it_has_left_at_once(
        self, shop: Shop, slow: None, monkeypatch: pytest.MonkeyPatch, cancelled: bool
    ) -> None:
        """No lease is waited for, and a run that nobody follows is ended all the same."""
        asked = killed_at_work(shop)
        monkeypatch.delenv("INSTEP_CRASH")
        with shop.store() as store:
            if cancelled:
                store.jobs.cancel(asked.id, "ann")
            shop.worker().run(drain=True)
            ended = store.jobs.get(asked.id)
            assert (ended.status, ended.attempt) == (("cancelled", 1) if cancelled else ("done", 2))
            first = store.runs.history("shop")[-1]
            assert (first.status, first.error) == ("failed", "interrupted: its process has ended")
            assert store.runs.orphans() == []

    def test_again_and_again_none_is_lost_and_none_doubled(self, shops: Shop) -> None:
        """Each round changes the sources, asks for everything, and kills a worker at another moment."""
        asked: list[Job] = []
        for number in range(4):
            process = shops.process("--lanes", "2")
            shops.sql("insert into item select max(id) + 1, 'more' from item")
            asked += [ask(shops, kind, name, 20) for name in shops.names for kind in ("sync", "detect")]
            time.sleep(3 + 0.9 * number)
            kill(process.pid)
            process.wait()
        with shops.working(), shops.store() as store:
            until(lambda: all(store.jobs.get(one.id).over for one in asked), 600)
            found = {one.id: store.jobs.get(one.id) for one in asked}
        assert {one.status for one in found.values()} <= {"done", "failed"}
        assert all("does its work" in one.error for one in found.values() if one.status == "failed")
        for name in shops.names:
            assert shops.count("count(*), count(distinct id)", name) == (6, 6)
