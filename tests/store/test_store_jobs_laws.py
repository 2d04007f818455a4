"""Laws of the queue for every order of claims, deaths, stalls, failures and clock steps: none lost, none doubled."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from store_world import Clock

import samples
from instep.errors import Conflict, Fenced
from instep.model import Job
from instep.store.store import Store

CONNECTIONS = st.sampled_from(["a", "b", ""])
KINDS = st.sampled_from(["sync", "detect", "test_connection"])


class QueueMachine(RuleBasedStateMachine):
    """Effects are events written in one transaction with the end of a job, as a worker writes them."""

    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.known: set[str] = set()
        self.effects: dict[str, int] = {}
        self.fences: dict[str, int] = {}

    @initialize()
    def open(self) -> None:
        self.store = Store(f"sqlite:///{Path(self.folder.name) / 'state.db'}", now=self.clock)

    @rule()
    def restart(self) -> None:
        """Everybody dies; what was not committed is gone."""
        self.store.close()
        self.open()

    @rule(connection=CONNECTIONS, kind=KINDS, key=st.sampled_from("12"), priority=st.sampled_from([0, 100]))
    def enqueue(self, connection: str, kind: str, key: str, priority: int) -> None:
        job, new = self.store.jobs.enqueue(connection, kind, key=key, priority=priority, attempts=3)  # type: ignore[arg-type]
        assert new is (job.id not in self.known)
        self.known.add(job.id)

    @rule(target=claims, owner=st.sampled_from(["w1", "w2"]))
    def claim(self, owner: str) -> object:
        job = self.store.jobs.claim(owner)
        if job is None:
            return multiple()
        assert job.fence > self.fences.get(job.id, 0)
        assert job.attempt <= job.attempts
        self.fences[job.id] = job.fence
        return job

    @rule(job=claims)
    def beat(self, job: Job) -> None:
        self.write(job, lambda: self.store.jobs.heartbeat(job))

    @rule(job=consumes(claims))
    def done(self, job: Job) -> None:
        """The holder of an old claim may come here long after the job was claimed again."""

        def end() -> None:
            with self.store.transaction():
                self.store.jobs.finish(job)
            self.effects[job.id] = self.effects.get(job.id, 0) + 1

        self.write(job, end)

    @rule(job=consumes(claims), retryable=st.booleans())
    def fail(self, job: Job, retryable: bool) -> None:
        self.write(job, lambda: self.store.jobs.fail(job, "x", retryable=retryable))

    @rule(job=consumes(claims))
    def give_back(self, job: Job) -> None:
        self.write(job, lambda: self.store.jobs.give_back(job, "stopping"))

    @rule(owner=st.sampled_from(["w1", "w2"]))
    def found_dead(self, owner: str) -> None:
        self.store.jobs.abandon([owner])

    @rule(job=claims)
    def cancel(self, job: Job) -> None:
        if self.store.jobs.get(job.id).over:
            with pytest.raises(Conflict):
                self.store.jobs.cancel(job.id, "me")
        else:
            self.store.jobs.cancel(job.id, "me")

    @rule(job=claims)
    def retry(self, job: Job) -> None:
        if self.store.jobs.get(job.id).status in ("failed", "dead", "cancelled"):
            self.store.jobs.retry(job.id, "me")

    @rule(seconds=st.sampled_from([1, 20, 61, 600]))
    def wait(self, seconds: int) -> None:
        self.clock.forward(seconds)

    def write(self, job: Job, how: object) -> None:
        """Only the last claim writes, and only while the job runs."""
        now = self.store.jobs.get(job.id)
        if (now.fence, now.status) == (job.fence, "running"):
            how()  # type: ignore[operator]
        else:
            with pytest.raises(Fenced):
                how()  # type: ignore[operator]

    @invariant()
    def no_job_is_lost_or_done_twice(self) -> None:
        if not hasattr(self, "store"):
            return
        found = {job.id: job for job in self.store.jobs.find(limit=10_000)}
        assert found.keys() == self.known
        assert {i for i, n in self.effects.items() if n == 1} == {i for i, j in found.items() if j.status == "done"}
        assert max(self.effects.values(), default=1) == 1

    @invariant()
    def one_runs_and_one_waits(self) -> None:
        if not hasattr(self, "store"):
            return
        running = [
            j.connection for j in self.store.jobs.find(status=["running"], limit=1000) if j.kind != "test_connection"
        ]
        assert len(set(filter(None, running))) == len(list(filter(None, running)))
        queued = [(j.connection, j.kind, j.key) for j in self.store.jobs.find(status=["queued"], limit=1000)]
        assert len(set(queued)) == len(queued)

    def teardown(self) -> None:
        """Whatever happened, the queue can be worked off: every job ends, and each that is done was done once."""
        if not hasattr(self, "store"):
            return
        for _ in range(1000):
            while job := self.store.jobs.claim("last"):
                self.done(job)
            if all(job.over for job in self.store.jobs.find(limit=10_000)):
                break
            self.clock.time += timedelta(seconds=61)
        assert all(job.over for job in self.store.jobs.find(limit=10_000))
        self.no_job_is_lost_or_done_twice()
        self.store.close()
        self.folder.cleanup()


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=25 if samples.FULL else 8, stateful_step_count=40, deadline=None)
