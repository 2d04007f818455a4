"""`instep worker` and `instep queue ...`: run queued jobs, and list, cancel and retry them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import Grace, Lanes, Limit, OnlyConnection, examples
from instep.cli.backend import open_backend
from instep.cli.commands.serve.log_options import LogFormat, LogLevel
from instep.cli.context import emit, options
from instep.operations.immediate.work import CancelJobRequest, RetryJobRequest
from instep.operations.queries.work import GetQueuedJob, ListQueue

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.model import Job, JobSummary
    from instep.operations.values import JobStatus

queue = typer.Typer(
    help="List, show, cancel and retry jobs.",
    epilog=examples("instep queue list --status failed"),
    no_args_is_help=True,
)
JobId = Annotated[str, typer.Argument(help="A job's id; the first characters are enough.")]
STATUSES = ("queued", "running", "done", "failed", "dead", "cancelled")
_STYLES = {"done": "green", "running": "green", "failed": "bold red", "dead": "bold red", "cancelled": "yellow"}


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("instep worker --lanes 4", "instep worker --drain"))(worker)
    app.add_typer(queue, name="queue")


def worker(
    lanes: Lanes = 2,
    drain: Annotated[bool, typer.Option("--drain", help="Exit when no job is left that may start now.")] = False,
    grace: Grace = 60,
    log_format: LogFormat = "auto",
    log_level: LogLevel = "info",
) -> None:
    """Run queued and scheduled jobs.

    The first SIGTERM or Ctrl-C gives running jobs the grace time to end; the second stops them at once. Jobs that did
    not end return to the queue.
    """
    import signal
    from functools import partial

    from instep import logs
    from instep.bootstrap import open_work
    from instep.worker.worker import JobWorker, WorkerLimits

    # The command line is read by spawned processes, too: they get the folder, no secret.
    settings = logs.LogSettings(log_format, log_level)
    logs.configure(settings)
    opener = partial(logs.logged, settings, partial(open_work, options.project.resolve()))
    job_worker = JobWorker(opener, WorkerLimits(lanes=lanes, grace=grace), logs.log_info)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: job_worker.stop())
    job_worker.run(drain=drain)


@queue.command("list", epilog=examples("instep queue list --status dead --status failed"))
def list_jobs(
    status: Annotated[
        list[str] | None, typer.Option("--status", help="queued, running, done, failed, dead or cancelled; repeatable.")
    ] = None,
    connection: OnlyConnection = None,
    limit: Limit = 50,
) -> None:
    """List jobs, newest first, with counts per status and the workers.

    `queue show` shows a job's result.
    """
    if wrong := [s for s in status or () if s not in STATUSES]:
        raise typer.BadParameter(f"{wrong[0]!r} is not one of {', '.join(STATUSES)}", param_hint="--status")
    with open_backend() as backend:
        query = ListQueue(connection, tuple(status or ()))  # type: ignore[arg-type]
        listing = backend.listing(query, limit)
    jobs, totals = listing.items, listing.page_summary
    workers = [asdict(w) for w in totals.workers]
    document = {"jobs": [asdict(j) for j in jobs], "counts": totals.counts, "workers": workers}
    emit(document, lambda out: _show_list(out, jobs, totals.counts, len(workers)))


def _show_list(out: Screen, job_summaries: Sequence[JobSummary], counts: Mapping[JobStatus, int], workers: int) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    grid = Grid(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("job", "connection", "kind", "status", "attempt", "due", "error"):
        grid.add_column(name, no_wrap=name != "error", overflow="fold")
    for job in job_summaries:
        error = job.error.splitlines()[0] if job.error and job.status != "done" else ""
        tried = f"{job.attempt} of {job.attempts}"
        due = f"{job.due:%Y-%m-%d %H:%M:%S}"
        style = _STYLES.get(job.status, "")
        grid.add_row(cell(job.id), cell(job.connection), job.kind, cell(job.status, style), tried, due, cell(error))
    if job_summaries:
        out.print(grid)
    totals = ", ".join(f"{n:,} {name}" for name, n in counts.items())
    out.print(f"{totals or 'no jobs'}; {workers} worker(s) alive", style="dim")


@queue.command(epilog=examples("instep queue show j-20260301"))
def show(job: JobId) -> None:
    """Show one job with its attempts and result."""
    with open_backend() as backend:
        details = backend.query(GetQueuedJob(job))
    emit({"job": asdict(details)}, lambda out: _show(out, details))


def _show(out: Screen, job: Job) -> None:
    out.write(f"{job.id}: {job.kind} of {job.connection or 'no connection'}: {job.status}", _STYLES.get(job.status, ""))
    for name, value in _lines(job).items():
        if value:
            out.write(f"  {name}: {value}")


def _lines(job: Job) -> dict[str, Any]:
    return {
        "asked": f"{job.created:%Y-%m-%d %H:%M:%S} UTC{' by ' + job.who if job.who else ''}",
        "why": job.why,
        "due": f"{job.due:%Y-%m-%d %H:%M:%S} UTC" if job.status == "queued" else "",
        "attempt": f"{job.attempt} of {job.attempts}",
        "began": f"{job.started:%Y-%m-%d %H:%M:%S} UTC on {job.owner}" if job.started and job.owner else "",
        "ended": f"{job.ended:%Y-%m-%d %H:%M:%S} UTC" if job.ended else "",
        "stop": job.stop,
        "run": job.run,
        "options": ", ".join(f"{k}={v}" for k, v in job.options.items()),
        "error": job.error,
        "result": ", ".join(f"{k}={v}" for k, v in job.result.items()),
    }


@queue.command(epilog=examples("instep queue cancel j-20260301-120000-1a2b3c4d"))
def cancel(job: JobId) -> None:
    """Cancel a job: at once if it is queued, else when its worker notices."""
    with open_backend() as backend:
        cancelled = backend.operations.perform(CancelJobRequest(job=job)).job
    outcome = "is cancelled" if cancelled.over else "is asked to stop"
    emit({"job": asdict(cancelled)}, lambda out: out.write(f"job {cancelled.id} {outcome}"))


@queue.command(epilog=examples("instep queue retry j-20260301-120000-1a2b3c4d"))
def retry(job: JobId) -> None:
    """Queue a job again that failed, died or was cancelled."""
    with open_backend() as backend:
        queued = backend.operations.perform(RetryJobRequest(job=job)).job
    emit({"job": asdict(queued)}, lambda out: out.write(f"job {queued.id} waits"))
