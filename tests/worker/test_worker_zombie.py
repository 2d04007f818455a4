"""A worker that stands still while its lease runs out: another one does its job, and what it writes then is refused."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy.engine import URL
from worker_world import Shop, kill, lanes_of, until

from instep.bootstrap import App
from instep.control import queue
from instep.model import Job
from instep.project.load import find, load
from instep.store.store import Store, utc_now
from instep.worker.worker import JobWorker, WorkerLimits
from postgres_server import Database

TABLES = """
    pragma journal_mode = wal;  -- who reads holds up nobody who writes
    create table item (id integer primary key, name text);
    create table tick (at text);
    insert into item values (1, 'pen'), (2, 'cup');
    insert into tick values ('one'), ('two');
"""


def later() -> datetime:
    """The clock of the second worker: to it, every lease of the first has run out."""
    return utc_now() + timedelta(minutes=5)


def opened_later(folder: Path) -> App:
    project = load(find(folder))
    return App(project, Store(project.store_url(), now=later))


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def shop(tmp_path: Path, postgres: Database, monkeypatch: pytest.MonkeyPatch) -> Shop:
    c = postgres.config
    place = URL.create("postgresql+psycopg", c.user, c.password, c.host, c.port, c.database)
    monkeypatch.setenv("STORE", url := place.render_as_string(hide_password=False))
    made = Shop(tmp_path, store_url=url)
    made.write()
    made.sql(TABLES)
    made.store().close()
    return made


@dataclass
class Zombie:
    """A worker that stands still, with its lane, which has read the source and written nothing."""

    shop: Shop
    job: Job
    process: subprocess.Popen[bytes]
    lane: int
    log: Path

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        until(lambda: state(self.process.pid) == "T")

    def wake(self, first: str) -> None:
        """Until it has learnt that its job is not its own any more."""
        if first == "lane":
            os.kill(self.lane, signal.SIGCONT)
            until(lambda: re.search(r"run r-\S+ was taken over by a later one", self.log.read_text()), 900)
        self.process.send_signal(signal.SIGCONT)
        until(lambda: re.search(rf"job {self.job.id}[^\"]* was taken over", self.log.read_text()), 900)


@pytest.fixture
def zombie(shop: Shop) -> Iterator[Zombie]:
    with shop.store() as store:
        asked = queue.ask(store, "shop", "sync", "ann").job
    line = [sys.executable, "-m", "instep.cli.main", "--project", str(shop.folder), "worker", "--lanes", "1"]
    log = shop.folder / "worker.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            line, stdout=out, stderr=out, env={**os.environ, "INSTEP_CRASH": "sync.snapshot=stop"}
        )
    try:
        until(lambda: any(state(lane) == "T" for lane in lanes_of(process.pid)), 900)
        made = Zombie(shop, asked, process, lanes_of(process.pid)[0], log)
        made.stop()
        yield made
    finally:
        for pid in (*lanes_of(process.pid), process.pid):
            kill(pid)
        process.wait()


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", ["lane", "worker"])
def test_its_late_writes_are_refused(shop: Shop, zombie: Zombie, first: str) -> None:
    """Whichever wakes up first: the lane, which would load what it has read, or the worker."""
    shop.sql("insert into item values (3, 'hat'); insert into tick values ('three')")
    second = JobWorker(partial(opened_later, shop.folder), WorkerLimits(lanes=1, poll=0.1), shop.said.append)
    working = threading.Thread(target=second.run)
    working.start()
    try:
        with shop.store() as store:
            until(lambda: store.jobs.get(zombie.job.id).over, 900)
            ended, runs = store.jobs.get(zombie.job.id), store.runs.history("shop")
            zombie.wake(first)
            assert (ended.status, ended.attempt, ended.fence) == ("done", 2, 2)
            assert store.jobs.get(ended.id) == ended, "it has ended once"
            assert store.runs.history("shop") == runs
            assert [run.status for run in runs] == ["done", "failed"]
            assert [e.data["run"] for e in store.events.latest(types=("run.ended",))] == [run.id for run in runs]
    finally:
        second.stop()
        working.join(600)
    assert shop.rows("select id, name from shop.item order by id") == [(1, "pen"), (2, "cup"), (3, "hat")]
    assert shop.rows('select "at" from shop.tick order by 1') == [("one",), ("three",), ("two",)]
