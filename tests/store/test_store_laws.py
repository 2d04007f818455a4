"""Laws that hold for every order of calls: the store beside a model of plain Python values."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from store_world import Clock, catalog, finding

import samples
from instep.errors import Conflict, Fenced, RunInProgress, StalePlan
from instep.model import Run
from instep.schema.catalog.catalog import Catalog, Column, Table, fingerprint
from instep.schema.catalog.types import parse
from instep.store.store import Store

KEYS = st.sets(st.sampled_from(["k1", "k2", "k3"]))
TABLES = st.lists(st.sampled_from(["a", "b", "c"]), unique=True)
CONNECTIONS = st.sampled_from(["c", "d"])


class StoreMachine(RuleBasedStateMachine):
    """Accepted versions only grow; fences only rise; a standing change is one row; a decided one stays decided."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.versions: dict[str, list[Catalog]] = {"c": [], "d": []}
        self.fences = {"c": 0, "d": 0}
        self.running: dict[str, Run] = {}
        self.lost: list[Run] = []
        self.standing: dict[str, dict[str, tuple[str, str]]] = {"c": {}, "d": {}}
        self.ids: set[str] = set()

    @initialize()
    def open(self) -> None:
        self.store = Store(f"sqlite:///{Path(self.folder.name) / 'state.db'}", now=self.clock)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()

    @rule(seconds=st.integers(1, 59))
    def wait(self, seconds: int) -> None:
        self.clock.forward(seconds)
        for run in self.running.values():
            self.store.runs.heartbeat(run)

    @rule(connection=CONNECTIONS, names=TABLES)
    def accept(self, connection: str, names: list[str]) -> None:
        known, wanted = self.versions[connection], catalog(*names)
        base = fingerprint(known[-1]) if known else ""
        version = self.store.accepted.add(connection, wanted, who="w", why="y", base=base)
        if not known or known[-1] != wanted:
            known.append(wanted)
        assert version.version == len(known)

    @precondition(lambda self: self.versions["c"])
    @rule()
    def accept_from_a_stale_base(self) -> None:
        with pytest.raises(StalePlan):
            self.store.accepted.add("c", Catalog(), who="w", why="y", base="stale")

    @rule(connection=CONNECTIONS)
    def claim(self, connection: str) -> None:
        if connection in self.running:
            with pytest.raises(RunInProgress):
                self.store.runs.claim(connection, "sync")
            return
        run = self.store.runs.claim(connection, "sync")
        assert run.fence == self.fences[connection] + 1
        self.fences[connection] = run.fence
        self.running[connection] = run

    @rule(connection=CONNECTIONS)
    def finish(self, connection: str) -> None:
        if run := self.running.pop(connection, None):
            assert self.store.runs.finish(run, "done").status == "done"
            self.lost.append(run)

    @precondition(lambda self: self.running)
    @rule()
    def expire(self) -> None:
        """All leases end; the next claim of each connection takes over."""
        self.clock.forward(3600)
        for connection, old in list(self.running.items()):
            del self.running[connection]
            self.claim(connection)
            assert self.store.runs.get(old.id).status == "failed"
            self.lost.append(old)

    @precondition(lambda self: self.lost)
    @rule()
    def a_run_that_is_over_writes_nothing(self) -> None:
        with pytest.raises(Fenced):
            self.store.runs.finish(self.lost[-1], "done")

    @rule(connection=CONNECTIONS, keys=KEYS)
    def detect(self, connection: str, keys: set[str]) -> None:
        before = self.standing[connection]
        found = self.store.reviews.record(connection, [finding(key) for key in sorted(keys)], "f")
        now = {review.key: (review.id, review.status) for review in found}
        for key in keys & before.keys():
            assert now[key] == before[key]
        fresh = {now[key][0] for key in keys - before.keys()}
        assert not fresh & self.ids
        self.ids |= fresh
        self.standing[connection] = now

    @rule(connection=CONNECTIONS, status=st.sampled_from(["approved", "rejected"]), data=st.data())
    def decide(self, connection: str, status: str, data: st.DataObject) -> None:
        if standing := self.standing[connection]:
            key = data.draw(st.sampled_from(sorted(standing)))
            self.store.reviews.decide(standing[key][0], status, "ana")  # type: ignore[arg-type]
            standing[key] = (standing[key][0], status)

    @rule(connection=CONNECTIONS)
    def apply(self, connection: str) -> None:
        approved = {key: id for key, (id, status) in self.standing[connection].items() if status == "approved"}
        with self.store.transaction():
            self.store.reviews.applied(approved.values())
        for key, review_id in approved.items():
            del self.standing[connection][key]
            with pytest.raises(Conflict, match="already applied"):
                self.store.reviews.decide(review_id, "rejected", "bob")

    @invariant()
    def the_store_says_the_same(self) -> None:
        for connection in ("c", "d"):
            known = self.versions[connection]
            history = self.store.accepted.history(connection)
            assert [v.fingerprint for v in reversed(history)] == [fingerprint(c) for c in known]
            assert self.store.accepted.catalog(connection) == (known[-1] if known else Catalog())
            assert self.store.runs.running(connection) == self.running.get(connection)
            standing = self.store.reviews.existing(connection)
            assert {key: (r.id, r.status) for key, r in standing.items()} == self.standing[connection]

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=25 if samples.FULL else 8, stateful_step_count=25, deadline=None)


def test_threads_share_a_store(store: Store) -> None:
    def work(name: str) -> None:
        for at in range(20):
            with store.transaction():
                store.pauses.pause(name, f"why {at}", change=str(at))
            store.accepted.add(name, catalog(f"t{at}"), who=name, why="y")

    threads = [threading.Thread(target=work, args=(f"c{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(4):
        assert len(store.pauses.active(f"c{n}")) == 20
        assert store.accepted.latest(f"c{n}").version == 20  # type: ignore[union-attr]


def test_a_large_catalog_comes_back_whole(store: Store) -> None:
    columns = tuple(Column(f"column_{n}", parse("string"), id=str(n)) for n in range(12))
    large = Catalog.of(Table("public", f"table_{n:05}", columns, id=str(n)) for n in range(3000))
    version = store.accepted.add("c", large, who="w", why="y")
    assert store.accepted.catalog("c") == large
    assert version.fingerprint == fingerprint(large)
