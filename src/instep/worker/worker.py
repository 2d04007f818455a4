"""The process that claims and watches: it fires schedules, hands jobs to lanes, and keeps their leases alive.

Whatever dies, the job is not lost: a lane's death is seen at once, a worker's by the next worker, another host's when
the lease ends. Whatever comes back late is refused by its fence.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from instep.control import schedules
from instep.errors import Fenced, InstepError
from instep.events import RunEnded
from instep.model import Job, Worker
from instep.monitoring.retention import forget_some
from instep.operations.values import JobStatus, RunStatus
from instep.store.store import Store
from instep.store.work.jobs import WAITED_FOR
from instep.worker.lane import Lane, LaneProject, NoticeThread, Opener, ready
from instep.worker.perform import JobEnd

BEAT = 15.0
SCHEDULE = 5.0
FORGET = 300.0
"""Seconds from one look for values of rows that the store must not have any longer to the next."""
INTERRUPTED = 10.0
"""Seconds that an interrupted job has to end by itself."""
WEIGHED = 10
"""Jobs of a lane after which its memory is checked."""


@dataclass(frozen=True)
class WorkerLimits:
    """Limits of a worker."""

    lanes: int = 2
    """Jobs at a time, beside one lane for what somebody waits for. A lane's process is replaced after so many `runs`
    or bytes of `memory`, its JVM's included."""
    runs: int = 500
    memory: int = 6 * 1024**3
    grace: float = 60.0
    """Seconds that running jobs have when the worker stops."""
    poll: float = 1.0
    """Seconds between two looks at an empty queue."""


class JobWorker:
    """Runs jobs until `stop` is called, from a signal or another thread. `said` hears what people may want to know."""

    def __init__(
        self, opener: Opener, limits: WorkerLimits = WorkerLimits(), notify: Callable[[str], None] = print
    ) -> None:
        self._opener, self._limits, self._notify = opener, limits, notify
        self._projects = LaneProject(opener, notify)
        self._stopping, self._at_once = threading.Event(), threading.Event()
        self._notices = NoticeThread(opener, notify)
        self._lanes: dict[int, Lane] = {}
        self._unsaved: dict[Lane, JobEnd] = {}
        self._beaten = self._scheduled = self._forgotten = float("-inf")
        self._timetable = schedules.Timetable()
        self._pruned: date | None = None
        self._me: Worker | None = None

    def stop(self) -> None:
        """Start no further job; running ones have the grace time. A second call ends it at once."""
        if self._stopping.is_set():
            self._at_once.set()
        else:
            self._ends = time.monotonic() + self._limits.grace
            self._beaten = float("-inf")  # whoever looks for a worker is told now
            self._stopping.set()

    def run(self, *, drain: bool = False) -> None:
        """Run jobs until stopped; with `drain`, until nothing is left that may begin.

        Raises what keeps the project or the store from being opened at first.
        """
        store = self._store
        self._me = store.workers.register(self._limits.lanes)
        self._notify(f"worker {self._me.id}: {self._limits.lanes} lane(s)")
        self._notices.start()
        try:
            self._bury()
            while not self._is_over(drain):
                self._turn(drain)
        finally:
            self._leave()

    @property
    def _store(self) -> Store:
        return self._projects.current().store

    def _turn(self, drain: bool) -> None:
        """Take one turn at everything. A store or file that cannot be read for a moment ends no work."""
        try:
            self._beat()
            if not self._stopping.is_set():
                self._schedule(drain)
                self._assign()
        except InstepError as error:
            self._notify(f"{error.message}; trying again")
            time.sleep(self._limits.poll)
        ready(self._busy, 0.05 if drain else self._limits.poll)
        self._collect()

    def _is_over(self, drain: bool) -> bool:
        """True once it was stopped and no lane works, or the grace time is over."""
        busy = bool(self._busy)
        if self._stopping.is_set():
            return not busy or self._at_once.is_set() or time.monotonic() >= self._ends
        return drain and not busy and not self._waiting() and not self._turns()

    def _turns(self) -> bool:
        """Return whether a rollout's next turn comes soon."""
        waiting: tuple[JobStatus, ...] = ("queued",)
        return bool(self._store.jobs.find(status=waiting, kind="rollout", limit=1))

    def _waiting(self) -> bool:
        """Return whether a job may begin now: it has begun."""
        self._assign()
        return bool(self._busy)

    def _schedule(self, drain: bool) -> None:
        """Take over what dead workers have left; unless it drains, fires what is due, by the settings as they are
        now."""
        if time.monotonic() < self._scheduled + SCHEDULE:
            return
        self._scheduled = time.monotonic()
        if outgrown := self._store.reason_unusable():
            self._notify(outgrown)
            self.stop()
            return
        self._bury()
        if time.monotonic() >= self._forgotten + FORGET:
            self._forgotten = time.monotonic()
            self._store.jobs.forget_values()
        if drain:
            return
        project, now = self._projects.current().project, datetime.now(UTC)
        for wrong in self._timetable.follow(self._store, project, now):
            self._notify(wrong)
        for wrong in self._timetable.freshness.check_next(self._store, project, now):
            self._notify(wrong)
        if self._pruned != now.date() and not forget_some(self._store, project.model.retention, now):
            self._pruned = now.date()  # until then a slice each time, so that no lease waits for it
        if schedules.fire(self._store, now):
            self._scheduled = float("-inf")  # there may be more

    def _bury(self) -> None:
        """Abandon jobs and runs of processes of this host that have ended."""
        self._store.jobs.abandon(gone := self._store.workers.ended_ids())
        self._store.workers.forget(gone)
        self._end_orphans(None, "failed", "interrupted: its process has ended")

    def _assign(self) -> None:
        """Assign jobs to idle lanes; a lane's process begins with its first job. The last lane is for jobs that
        somebody waits for."""
        for number in range(self._limits.lanes + 1):
            lane = self._lanes.get(number)
            if lane is not None and lane.job is not None:
                continue
            at_least = WAITED_FOR if number == self._limits.lanes else None
            job = self._store.jobs.claim(self._me.id if self._me else "", at_least=at_least)
            if job is None:
                return
            self._lane(number).begin(job)

    def _lane(self, number: int) -> Lane:
        lane = self._lanes.get(number)
        if lane is None:
            lane = self._lanes[number] = Lane(self._opener)
        elif not lane.alive:
            lane.renew()
        return lane

    @property
    def _busy(self) -> list[Lane]:
        return [lane for lane in self._lanes.values() if lane.job is not None]

    def _beat(self) -> None:
        """Send heartbeats, and fetch requests to stop."""
        if time.monotonic() < self._beaten + min(BEAT, self._store.jobs.lease.total_seconds() / 4):
            return self._kill_late()
        self._beaten = time.monotonic()
        assert self._me is not None
        with suppress(Fenced):  # the others took it for dead: its jobs say so, too
            self._store.workers.beat(self._me, stopping=self._stopping.is_set())
        for lane in self._busy:
            if lane.job is not None:
                self._beat_for(lane, lane.job)
        return None

    def _beat_for(self, lane: Lane, job: Job) -> None:
        try:
            lane.job = self._store.jobs.heartbeat(job)
        except Fenced:
            self._notify(f"job {job.id} was taken over: its lane is ended")
            self._unsaved.pop(lane, None)
            lane.job = None
            lane.kill()
            self._end_orphans(job.connection, "failed", "interrupted: its job was taken over")
            return
        if lane.job.stop:
            lane.interrupt(INTERRUPTED)

    def _kill_late(self) -> None:
        for lane in self._busy:
            if time.monotonic() > lane.kill_at:
                lane.kill()

    def _collect(self) -> None:
        """Write down what has ended. What cannot be written now is written in a later turn."""
        for lane in self._busy:
            if lane not in self._unsaved and (ended := lane.ended()):
                self._unsaved[lane] = ended
        for lane, ended in list(self._unsaved.items()):
            try:
                self._save(lane, ended)
            except Fenced as error:
                self._notify(error.message)
            except InstepError as error:
                self._notify(f"{error.message}; trying again")
                continue
            del self._unsaved[lane]
            lane.job, lane.kill_at = None, float("inf")
            self._recycle(lane)

    def _save(self, lane: Lane, ended: JobEnd) -> None:
        assert lane.job is not None
        jobs, job = self._store.jobs, lane.job
        with self._store.transaction(job.connection):
            by = jobs.get(job.id).stop
            if run := ended.run or self._unended(lane, job, ended, by):
                jobs.note_run(job, run)
            if ended.again is not None and not by:
                jobs.give_back(job, ended.error, timedelta(seconds=ended.again))
                return
            if ended.interrupted or ((ended.error or ended.again is not None) and by):
                job = jobs.finish(job, "cancelled", error=f"stopped by {by}") if by else self._give_back(job)
            elif ended.error:
                job = jobs.fail(job, ended.error, retryable=ended.transient, result=ended.result)
            else:
                job = jobs.finish(job, result=ended.result)
        self._notify(f"job {job.id} ({job.kind} of {job.connection or '-'}): {job.status}" + _why(job))

    def _unended(self, lane: Lane, job: Job, ended: JobEnd, by: str) -> str:
        """End the run that a lane has left behind with its job; return its id, "" if there is none."""
        if lane.alive:
            return ""
        if not ended.interrupted:
            return self._end_orphans(job.connection, "failed", f"interrupted: {ended.error}")
        return self._end_orphans(job.connection, "cancelled", f"stopped by {by}" if by else "its worker stopped")

    def _end_orphans(self, connection: str | None, status: RunStatus, error: str) -> str:
        """End the runs of dead processes, of one connection or of all (None); answers the last one's id."""
        reason = ""
        for run in self._store.runs.orphans():
            if connection in (None, run.connection):
                with suppress(Fenced), self._store.transaction():  # the connection's next run may have done it
                    self._store.runs.finish(run, status, error)
                    self._store.events.add(RunEnded(run.connection, run.id, run.kind, status, error))
                reason = run.id
        return reason

    def _give_back(self, job: Job) -> Job:
        return self._store.jobs.give_back(job, "its worker stopped")

    def _recycle(self, lane: Lane) -> None:
        """Replace a process that has done much, uses much memory, or is gone."""
        lane.done += 1
        if self._stopping.is_set():
            return
        heavy = lane.done % WEIGHED == 0 and lane.memory() > self._limits.memory
        if heavy or lane.done >= self._limits.runs or not lane.alive:
            lane.renew()

    def _leave(self) -> None:
        """Stop: jobs that still run get some seconds to end and are given back; then lanes end."""
        for lane in self._busy:
            lane.interrupt(INTERRUPTED)
        end = time.monotonic() + INTERRUPTED
        while self._busy and time.monotonic() < end and not self._at_once.is_set():
            ready(self._busy, 0.2)
            self._collect()
        for lane in self._busy:
            lane.kill()
        self._collect()
        for lane in self._lanes.values():
            lane.close()
            if lane.job is not None:
                with suppress(InstepError):
                    self._give_back(lane.job)
        self._notices.close(wait=not self._at_once.is_set())
        if self._me is not None:
            with suppress(InstepError):
                self._store.workers.leave(self._me)
        self._projects.close()


def _why(job: Job) -> str:
    return f": {job.error.splitlines()[0]}" if job.error and job.status != "done" else ""
