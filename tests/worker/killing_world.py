"""Workers that are killed again and again while the queue is full, and what must be true of it afterwards."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise

import httpx2
from sqlalchemy import text
from worker_world import Shop, kill, lanes_of, until

from instep.control import queue
from instep.model import JobKind
from instep.store.history.recorded_event import LoggedEvent
from instep.store.store import Store

TABLES = """
    create table item (id integer primary key, name text);
    create table tick (at text);
"""


@dataclass
class Asks:
    """Asks for `count` jobs by turns of all connections: each `syncs`-th is a sync, before which there is a row more in
    its source, the others are detections, which take a quarter of the time. `ask` is called with connection, kind and
    number until it answers the id of a job."""

    shop: Shop
    count: int
    ask: Callable[[str, JobKind, int], str]
    syncs: int = 1
    jobs: list[str] = field(default_factory=list)

    def run(self) -> None:
        for number in range(self.count):
            name = self.shop.names[number % len(self.shop.names)]
            if number % self.syncs:
                self.jobs.append(self.ask(name, "detect", number))
                continue
            with closing(sqlite3.connect(self.shop.folder / f"{name}.db", timeout=60)) as source, source:
                source.execute("insert into item (name) values (?)", (f"n{number}",))
                source.execute("insert into tick values ('tock')")
            self.jobs.append(self.ask(name, "sync", number))

    def known(self, asker: threading.Thread) -> int:
        """Jobs there will be, at most: what is asked for again while it still waits is one job, not two."""
        return self.count if asker.is_alive() else len(set(self.jobs))


def by_store(store: Store) -> Callable[[str, JobKind, int], str]:
    return lambda name, kind, number: queue.ask(store, name, kind, "ann", {"why": str(number)}, attempts=20).job.id


@dataclass
class Served:
    """`instep server`, killed and started again; `ask` goes on asking until it has an answer of its own."""

    shop: Shop
    secret: str
    port: int
    kills: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = self.shop.process("--port", str(self.port), "--rate", "100000", command="server")

    def strike(self) -> None:
        self.end()
        self.kills += 1
        self.start()

    def end(self) -> None:
        if self.process is not None:
            kill(self.process.pid)
            self.process.wait()

    def ask(self, name: str, kind: JobKind, number: int) -> str:
        """A sync that begins after this call: one that runs already may have read before."""
        for again in range(10_000):
            found = self._answer(name, f"{number}-{again}")
            if found["status"] == "queued":
                return str(found["id"])
            time.sleep(0.2)
        raise AssertionError(f"{name} is never free")

    def _answer(self, name: str, once: str) -> dict[str, object]:
        """Whatever has become of a request without an answer, it is repeated under the same key."""
        head = {"Authorization": f"Bearer {self.secret}", "Idempotency-Key": f"killed-{once}"}
        end = time.monotonic() + 300
        while True:
            try:
                found = httpx2.post(
                    f"http://127.0.0.1:{self.port}/api/v1/connections/{name}/sync", json={}, headers=head, timeout=30
                )
            except httpx2.TransportError:
                assert time.monotonic() < end, "the server does not answer"
                time.sleep(0.1)
                continue
            assert found.status_code in (200, 202), found.text
            return dict(found.json())


@dataclass
class Killer:
    """`workers` processes that are replaced as often as they are killed, or a lane of theirs, at random moments."""

    shop: Shop
    workers: int
    lanes: int = 2
    random: random.Random = field(default_factory=lambda: random.Random(7))
    alive: list[subprocess.Popen[bytes]] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)

    def start(self) -> None:
        while len(self.alive) < self.workers:
            self.alive.append(self.shop.process("--lanes", str(self.lanes), "--grace", "0"))

    def strike(self) -> None:
        """One of them, or what works for it."""
        victim = self.random.choice(self.alive)
        lanes = lanes_of(victim.pid)
        if lanes and self.random.random() < 0.5:
            kill(self.random.choice(lanes))
            self.kills["lane"] += 1
            return
        kill(victim.pid)
        victim.wait()
        self.alive.remove(victim)
        self.kills["worker"] += 1
        self.start()

    def end(self) -> None:
        for process in self.alive:
            process.terminate()
        for process in self.alive:
            process.wait(300)


def ended(store: Store) -> int:
    """Jobs that are over; a detection that one of them has set off is not counted."""
    query = "select count(*) from jobs where who like 'ann%' and status not in ('queued', 'running')"
    with store._db.read() as transaction:
        return int(transaction.execute(text(query)).scalar_one())


def hastened(store: Store) -> int:
    """As `ended`; what waits for its next attempt need not wait."""
    with store._db.write() as transaction:
        transaction.execute(text("update jobs set due = created where status = 'queued'"))
    return ended(store)


def run(shop: Shop, store: Store, asks: Asks, killer: Killer, kills: int, others: Callable[[], None]) -> None:
    """Kills, each after some progress, so that a slow machine gets on; then lets all that waits be done."""
    asker = threading.Thread(target=asks.run)
    killer.start()
    asker.start()
    try:
        for _ in range(kills):
            goal = ended(store) + killer.random.randrange(1, max(2, 2 * asks.count // kills - 3))
            until(lambda goal=goal: ended(store) >= min(goal, asks.known(asker)), 600)  # type: ignore[misc]
            time.sleep(killer.random.random())
            killer.strike()
            others()
        asker.join(600)
        assert len(asks.jobs) == asks.count, "whoever asks has failed: see the exception of its thread"
        until(lambda: hastened(store) >= len(set(asks.jobs)), 900 + 2 * asks.count)
    finally:
        killer.end()
        asker.join(300)


def check(shop: Shop, store: Store, asks: Asks) -> None:
    """None lost, none doubled, none at the same time as another of its connection."""
    assert len(asks.jobs) == asks.count
    found = [store.jobs.get(one) for one in dict.fromkeys(asks.jobs)]
    known = [one for one in store.jobs.find(limit=100_000) if one.who.startswith("ann")]
    assert {one.id for one in found} == {one.id for one in known}
    assert [(one.id, one.status, one.error) for one in found if one.status != "done"] == []
    for name in shop.names:
        jobs = [one for one in found if one.connection == name and one.kind == "sync"]
        runs = {one.id: one for one in store.runs.history(name, limit=10_000)}
        done = [one for one in runs.values() if one.status == "done"]
        assert {one.run for one in jobs} <= {one.id for one in done}
        assert len({one.run for one in jobs}) == len(jobs), f"{name}: one run for two jobs"
        # A run more is that of a job whose worker died between the end of the run and that of the job.
        assert len(runs) <= sum(one.attempt for one in jobs)
        apart(name, [(one.started, one.ended) for one in runs.values()])
        fences = [one.fence for one in sorted(runs.values(), key=lambda r: (r.started, r.fence))]
        assert fences == sorted(set(fences)), f"{name}: fences go back"
        arrived(shop, name)
    ends = Counter(_ends(store))
    assert set(ends.values()) == {1}, "a run ended twice"
    assert {one.run for one in found if one.kind == "sync"} <= ends.keys()
    looked = {str(e.event.job) for e in _events(store, "detection.finished")}  # type: ignore[attr-defined]
    assert {one.id for one in found if one.kind == "detect"} <= looked


def apart(name: str, spans: list[tuple[object, object]]) -> None:
    for (_, before), (after, _) in pairwise(sorted(spans)):  # type: ignore[type-var]
        assert before is not None, f"{name}: a run has no end"
        assert before <= after, f"{name}: two runs at once"  # type: ignore[operator]


def arrived(shop: Shop, name: str) -> None:
    with closing(sqlite3.connect(shop.folder / f"{name}.db")) as source:
        items = source.execute("select id, name from item order by id").fetchall()
        ticks = source.execute("select count(*) from tick").fetchone()
    assert shop.rows(f"select id, name from {name}.item order by id", name) == items  # noqa: S608
    assert shop.rows(f"select count(*) from {name}.tick", name) == [ticks]  # noqa: S608


def _ends(store: Store) -> list[str]:
    return [str(logged.event.run) for logged in _events(store, "run.ended")]  # type: ignore[attr-defined]


def _events(store: Store, type: str) -> Iterator[LoggedEvent]:
    after = 0
    while page := store.events.after(after, types=[type]):
        yield from page
        after = page[-1].number
