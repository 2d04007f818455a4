"""Rollouts as jobs of workers: a job for each run of a connection, and one that carries the rollout on, turn by
turn. A turn begins what may begin, writes down what has ended, and waits for nothing: no lane is held meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instep.control.rollouts.course import Course, to_advance, to_resume, to_roll_back
from instep.control.rollouts.patch import RunsUnfinished
from instep.errors import Conflict, ProjectError
from instep.model import Job, JobKind, Measure, RunOutcome, TableHealth
from instep.operations.registry import policy_of
from instep.store.store import Store
from instep.store.work.jobs import REQUESTED, WAITED_FOR

ATTEMPTS = 3
"""A run whose worker dies is carried out again; one that fails has failed."""


@dataclass(frozen=True)
class QueuedRuns:
    """`Runs` as jobs, for the rollout of this id."""

    store: Store
    rollout: str
    source_of: Callable[[str], str]
    who: str

    @property
    def lanes(self) -> int:
        return sum(worker.lanes for worker in self.store.workers.live()) or 1

    def detect(self, connection: str, key: str) -> RunOutcome | None:
        return self._outcome(connection, "refresh", key, {})

    def sync(self, connection: str, key: str, *, measured: bool) -> RunOutcome | None:
        return self._outcome(connection, "sync", key, {"measured": True, "nulls": measured})

    def undo(self, connection: str, change: str, key: str) -> RunOutcome | None:
        return self._outcome(connection, "undo", f"{key}/{change}", {"what": change})

    def wait(self) -> None:
        raise RunsUnfinished

    def _outcome(self, connection: str, kind: JobKind, key: str, options: Mapping[str, Any]) -> RunOutcome | None:
        with self.store.transaction():
            job = self.store.jobs.newest(connection, kind, key)
            if job is None:
                try:
                    source = self.source_of(connection)
                except ProjectError as error:  # it was deleted meanwhile
                    return RunOutcome("", "failed", error.message)
                job, _ = self.store.jobs.enqueue(
                    connection,
                    kind,
                    key=key,
                    options=options,
                    priority=REQUESTED,
                    attempts=ATTEMPTS,
                    why=f"rollout {self.rollout}",
                    who=self.who,
                    source=source,
                )
            pause = self.store.pauses.connection(connection) if not policy_of(kind).runs_while_paused else None
            if pause and job.status == "queued":  # it would wait for as long as the pause lasts
                self.store.jobs.cancel(job.id, self.who)
                return RunOutcome("", "failed", f"connection {connection} is paused: {pause.reason}")
        return outcome_of(job)


def outcome_of(job: Job) -> RunOutcome | None:
    """Return the outcome of a run's job; None while it waits or runs."""
    if not job.over:
        return None
    if job.result.get("tables") is None or job.status not in ("done", "failed", "dead"):
        return RunOutcome(job.run, "done" if job.status == "done" else "failed", job.error)
    result = job.result
    tables = {path: _health(of) for path, of in result["tables"].items()}
    return RunOutcome(result["run"], result["status"], result["error"], tables)


def _health(result: Mapping[str, Any]) -> TableHealth:
    before, after = (Measure(**result[when]) if result[when] else None for when in ("before", "after"))
    return TableHealth(result["read"], result["held"], before, after)


def advance(store: Store, id: str, who: str, *, every: bool = False) -> tuple[Job, bool]:
    """Queue the job that advances the rollout; return (the job, whether it is new): see `to_advance`. A job under
    way is returned."""
    with store.transaction():
        id = store.rollouts.get(id).id
        if (job := under_way(store, id)) and not job.options["back"]:
            return job, False
        _check_idle(job)
        return _enqueue(store, id, to_advance(store, id, every=every), who), True


def resume(store: Store, id: str, who: str, *, every: bool = False, accept: str = "") -> Job:
    """Return the job that resumes it: see `to_resume`. Conflict while another one is under way."""
    with store.transaction():
        id = store.rollouts.get(id).id
        _check_idle(under_way(store, id))
        return _enqueue(store, id, to_resume(store, id, who, every=every, accept=accept), who)


def roll_back(store: Store, id: str, who: str, *, wave: int = 0, connections: Sequence[str] = ()) -> Job:
    """Return the job that takes it back: see `to_roll_back`. Conflict while another one is under way."""
    with store.transaction():
        id = store.rollouts.get(id).id
        _check_idle(under_way(store, id))
        return _enqueue(store, id, to_roll_back(store, id, wave=wave, connections=connections), who)


def under_way(store: Store, id: str) -> Job | None:
    """Return the job that carries the rollout on."""
    job = store.jobs.newest("", "rollout", id)
    return job if job and not job.over else None


def withdraw(store: Store, id: str, who: str) -> None:
    """Remove what waits for a worker: there is none, and this process carries the rollout on.

    A run that a worker has begun is begun again.
    """
    with store.transaction():
        running = under_way(store, id)
        members = store.rollouts.members(id, statuses=("running",))
        runs = [store.jobs.newest(m.connection, "sync", f"{id}/{m.attempt}") for m in members]
        for job in (running, *runs):
            if job and not job.over:
                store.jobs.cancel(job.id, who)


def _check_idle(job: Job | None) -> None:
    if job is not None:
        raise Conflict(
            f"rollout {job.key} is carried on by workers (job {job.id})",
            hint=f"wait for it, or `instep rollout stop {job.key}`: it ends with the runs that are under way",
        )


def _enqueue(store: Store, id: str, course: Course, who: str) -> Job:
    job, _ = store.jobs.enqueue(
        "", "rollout", key=id, options=course.to_dict(), priority=WAITED_FOR, why=course.text, who=who
    )
    return job
