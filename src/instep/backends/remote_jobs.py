"""Waiting for a job at the server: its progress from the events of its connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from instep import errors
from instep.backends.decode import record
from instep.backends.http.client import Client, part
from instep.model import EngineUse, Job, TableRun
from instep.operations.registry import query_specs
from instep.sync.progress import SyncReport

POLL = 1.0
FIRST = 0.1
"""Seconds between two looks at a job: the first ones come sooner, because much is done at once."""


class ProgressDisplay(Protocol):
    """The display of progress, as `sync.progress.Progress` declares it."""

    def step(self, text: str) -> None: ...

    def table(self, path: str, *, rows: int = 0, bytes: int = 0, step: str = "") -> None: ...

    def received(self, path: str, rows: int, expected: int) -> None: ...


@dataclass
class _Shown:
    """Part of a job's progress that was shown already."""

    status: str = ""
    event: int = 0
    """The number of the last event."""
    run: str = ""
    """The run that the job has begun last."""


@dataclass
class Follower:
    """Waits for jobs of a server and shows their progress."""

    client: Client
    watch: Callable[[], AbstractContextManager[ProgressDisplay]]
    """Draws what is told while a job is waited for."""
    left: Callable[[str], None]
    """Called with its id when the user stops waiting: the job goes on."""
    poll: float = POLL
    sleep: Callable[[float], None] = time.sleep

    def done(self, id: str) -> Job:
        """Return the job once it is over; the error that it ended with."""
        job = self.wait_until_over(id)
        if job.status != "done":
            raise error_of(job)
        return job

    def wait_until_over(self, id: str) -> Job:
        """Return the job once it is over, however it ended."""
        try:
            with self.watch() as display:
                return self._until_over(id, display)
        except KeyboardInterrupt:
            self.left(id)
            raise

    def _until_over(self, id: str, display: ProgressDisplay) -> Job:
        shown, waits = _Shown(), self.waits()
        while not (job := record(Job, self.client.get(f"/queue/{part(id)}"))).over:
            if (text := job_status(job)) != shown.status:
                display.step(text)
                shown.status = text
            if job.status == "running":
                self._show_events(job, shown, display)
                self._show_received(shown, display)
            self.sleep(next(waits))
        return job

    def waits(self) -> Iterator[float]:
        """Yield the seconds to wait before each next look."""
        wait = FIRST
        while True:
            yield min(wait, self.poll)
            wait = min(2 * wait, self.poll)

    def _show_events(self, job: Job, shown: _Shown, display: ProgressDisplay) -> None:
        """Show the events of the connection since the job began, oldest first."""
        page = self.client.get("/events", connection=job.connection, limit=200)["items"]
        for event in reversed(page):
            if event["number"] > shown.event and (not job.started or event["at"] >= _text(job)):
                _show_event(event["type"], event["data"], shown, display)
        shown.event = max([shown.event, *(int(e["number"]) for e in page)])

    def _show_received(self, shown: _Shown, display: ProgressDisplay) -> None:
        """Show what a connector has sent so far, as the record of the run has it every few seconds."""
        if shown.run:
            received = self.client.get(f"/runs/{part(shown.run)}")["detail"].get("received") or {}
            for path, one in received.items():
                display.received(path, int(one["rows"]), int(one["expected"]))


def _show_event(type: str, data: Mapping[str, Any], shown: _Shown, display: ProgressDisplay) -> None:
    if type == "run.started":
        shown.run = str(data.get("run", ""))
        display.step(f"{data.get('kind', 'run')} {shown.run}")
    elif type in ("table.loaded", "table.failed"):
        step = "done" if type == "table.loaded" else "failed"
        display.table(str(data.get("table", "")), rows=int(data.get("read", 0)), step=step)
    elif type == "table.maintained":
        display.table(str(data.get("table", "")), step="done")


def _text(job: Job) -> str:
    assert job.started is not None
    return job.started.strftime("%Y-%m-%dT%H:%M:%S")


def job_status(job: Job) -> str:
    """Return a sentence on a job that is not over: what it waits for, or that it runs."""
    if job.status == "running":
        return f"{job.kind} runs (job {job.id}, attempt {job.attempt} of {job.attempts})"
    if job.error:
        why = job.error.splitlines()[0]
        return f"attempt {job.attempt} of {job.attempts} failed: {why}; the next one at {job.due:%H:%M:%S} UTC"
    return f"{job.kind} waits for a worker (job {job.id})"


def error_of(job: Job) -> errors.InstepError:
    """Return the error that ended a job, of the kind that the command would have raised where the worker is."""
    if job.status == "cancelled":
        return errors.Blocked(f"job {job.id} was cancelled: {job.error or job.stop}", hint="ask for it again")
    problem = job.result.get("problem")
    if isinstance(problem, dict) and problem.get("message"):
        return errors.named(str(problem.get("type")))(str(problem["message"]), hint=str(problem.get("hint", "")))
    return errors.InstepError(f"job {job.id} is {job.status}: {job.error}", hint=f"see `instep queue show {job.id}`")


def report_of(client: Client, job: Job) -> SyncReport | None:
    """Return the report of a sync from its run; None if an error ended it before it could report."""
    if not (run := str(job.result.get("run") or "")):
        return None
    document = client.get(f"/runs/{part(run)}")
    size = query_specs()["list_run_tables"].largest_page
    outcomes = client.pages(f"/runs/{part(run)}/tables", size=size)
    tables = tuple(record(TableRun, {**outcome, "run": run, "table": outcome["ref"]}) for outcome in outcomes)
    report = {name: tuple(job.result.get(name, ())) for name in ("notes", "applied", "waiting", "retryable", "unread")}
    seconds, casts = float(job.result.get("seconds", 0.0)), dict(job.result.get("casts", {}))
    engine = record(EngineUse, recorded) if (recorded := document["detail"].get("engine")) else None
    return SyncReport(run, document["status"], tables, **report, seconds=seconds, casts=casts, engine=engine)


@dataclass(frozen=True)
class RemoteJobs:
    """Work that a server's workers do, job by job."""

    client: Client
    follower: Follower
    note: Callable[[str], None]
    """Callback for what blocks a job."""

    def begin(self, connection: str, what: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the job that a request below a connection has put into the queue, or that was there already."""
        job: dict[str, Any] = self.client.post(f"/connections/{part(connection)}/{what}", body)
        if not job["fresh"]:
            self.note(f"job {job['id']} exists already: {job['status']}")
        if job.get("note"):
            self.note(job["note"])
        return job

    def done(self, connection: str, what: str, body: Mapping[str, Any]) -> Job:
        """Enqueue the work and return its job once it is done; raise the error that it ended with."""
        return self.follower.done(self.begin(connection, what, body)["id"])

    def answer(self, job: Job, kind: type[Any]) -> Any:
        """Return the record that a job has answered, of which some may have failed; the tables of a run are on record
        with it. Raise the error that ended the job if it has answered nothing."""
        if job.status != "cancelled" and kind is SyncReport:
            if (report := report_of(self.client, job)) is not None:
                return report
        elif job.status != "cancelled" and job.result and "problem" not in job.result:
            return kind.of_job(job, record) if hasattr(kind, "of_job") else record(kind, job.result)
        raise error_of(job)
