"""Spark sessions of lanes: warm from job to job, replaced after some, and never left behind."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from worker_world import Shop, job, until

from instep.control import queue
from instep.model import Job
from instep.worker import lane as lanes
from instep.worker.lane import Lane
from instep.worker.perform import JobEnd
from instep.worker.worker import JobWorker


@dataclass
class Watched:
    """Who did each job: (process, JVM or 0, bytes)."""

    worker: JobWorker
    seen: list[tuple[int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        save = self.worker._save

        def noted(lane: Lane, ended: JobEnd) -> None:
            self.seen.append((lane.pid, next(iter(jvms(lane.pid)), 0), lane.memory()))
            save(lane, ended)

        self.worker._save = noted  # type: ignore[method-assign]


def jvms(lane: int) -> list[int]:
    found = []
    for pid in lanes._session(lane):
        with suppress(OSError):  # it has ended meanwhile
            if "java" in Path(f"/proc/{pid}/comm").read_text():
                found.append(pid)
    return found


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def asked(shop: Shop, kind: str, count: int, **options: object) -> list[Job]:
    with shop.store() as store:
        return [queue.ask(store, "shop", kind, "ann", {**options, "n": n}).job for n in range(count)]  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_session_does_some_syncs_and_makes_way(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSTEP_ARCHIVE", "off")
    shop.engine = "spark"
    shop.write()
    jobs = asked(shop, "sync", 3, full=True)
    watched = Watched(shop.worker(lanes=1, runs=2))
    watched.worker.run(drain=True)
    ended = [job(shop, one.id) for one in jobs]
    assert [(one.status, one.error) for one in ended] == [("done", "")] * 3
    assert shop.count("count(*), count(distinct id)") == (2, 2)
    (first, second, third) = watched.seen
    assert first[:2] == second[:2] != third[:2]
    assert min(first[1], third[1]) > 0
    assert min(size for *_, size in watched.seen) > 200 * 1024**2, "a JVM is part of what a lane holds"
    until(lambda: not any(running(pid) for *both, _ in watched.seen for pid in both))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_lane_that_is_killed_takes_its_jvm_with_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSTEP_ARCHIVE", "off")
    monkeypatch.setenv("INSTEP_CRASH", "sync.commit=sleep:600")
    shop.engine = "spark"
    shop.write()
    (one,) = asked(shop, "sync", 1)
    with shop.working(lanes=1, grace=0) as worker:
        until(lambda: any(jvms(lane.pid) for lane in worker._lanes.values()), 300)
        (lane,) = worker._lanes.values()
        (jvm,) = jvms(lane.pid)
        lane.kill()
        until(lambda: not running(jvm))
        until(lambda: job(shop, one.id).status == "queued")


def test_a_lane_that_holds_too_much_makes_way(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.worker.worker.WEIGHED", 1)
    jobs = asked(shop, "test_connection", 2, source="shop_db")
    watched = Watched(shop.worker(lanes=1, memory=1))
    watched.worker.run(drain=True)
    assert {job(shop, one.id).status for one in jobs} == {"done"}
    assert len({pid for pid, *_ in watched.seen}) == 2
