"""Execution of jobs, by the same functions that the commands call."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from instep.bootstrap import App
from instep.control import detector
from instep.control.rollouts.course import course_of
from instep.control.rollouts.create import patch_of
from instep.control.rollouts.flow import Rolling, stop
from instep.control.rollouts.patch import RunsUnfinished
from instep.control.rollouts.policies import ServedPolicies
from instep.control.rollouts.queued import QueuedRuns
from instep.errors import Blocked, Conflict, InstepError, ProjectError, RunInProgress, is_unreachable
from instep.logs import bound
from instep.model import Check, Job
from instep.operations.registry import spec_of, work_of
from instep.operations.spec import DirectWork, OperationSpec, Request, Work, check_served
from instep.redaction import blot, error_line
from instep.schema.selection.selection import patterns
from instep.spans import span, tell
from instep.sync.context import SyncContext

TURN = 1.0
"""Seconds between two turns of a rollout."""


def turn(app: App, job: Job) -> Mapping[str, Any] | None:
    """Run a rollout's turn and return the result; None where it comes again: it waits for runs, or for the process
    of its last turn, which was killed a moment ago."""
    store = app.store
    patch = patch_of(store.rollouts.get(job.key).what, app.project, store, ServedPolicies(app.objects))
    runs = QueuedRuns(store, job.key, app.project.source_of, job.who)
    try:
        rollout = Rolling(store, patch, runs, job.who, in_turns=True).carry_on(job.key, course_of(job.options), job.id)
    except (RunsUnfinished, Conflict):
        return None
    return {"rollout": rollout.id, "status": rollout.status, "wave": rollout.wave, "why": rollout.why}


def given_up(app: App, job: Job, why: str) -> None:
    """Stop the rollout whose job has failed for good, until somebody resumes it."""
    with suppress(InstepError):
        stop(app.store, job.key, "worker", why)


def measured(app: App, job: Job) -> JobEnd:
    """Run one sync of a rollout and record its effect on each table, at which the gates look."""
    from instep.sync.runs import measured_sync

    nulls = bool(job.options.get("nulls"))
    outcome = measured_sync(_context(app, job), app.engine(job.connection), nulls=nulls)
    failed = outcome.error if outcome.status == "failed" else ""
    return JobEnd(failed, run=outcome.run, result=asdict(outcome))


_log = logging.getLogger("instep.worker")
_SYNCS = ("sync", "backfill")
IN_PROGRESS = 2.0
"""Seconds after which a job comes again that has met another run of its connection: that is no attempt."""


@dataclass(frozen=True)
class JobEnd:
    """End of a job in its lane."""

    error: str = ""
    transient: bool = False
    """The same may work later."""
    interrupted: bool = False
    """True if it was interrupted."""
    again: float | None = None
    """Seconds after which it comes again; None if it is over."""
    run: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)


def perform(app: App, job: Job) -> JobEnd:
    """Run a job. Every error becomes its end; nothing of the job is written to the queue from here."""
    with bound(job=job.id, connection=job.connection, kind=job.kind, attempt=str(job.attempt)):
        app.traced()
        with span("job", priority=job.priority):
            ended = _perform(app, job)
            tell(**({"error": ended.error} if ended.error else {}))
            return ended


def _perform(app: App, job: Job) -> JobEnd:
    before = _last_run(app, job)
    try:
        return _carried_out(app, job)
    except KeyboardInterrupt:
        ended = JobEnd("interrupted", interrupted=True)
    except RunInProgress as error:  # of a person, or of a lane that dies a moment after its worker
        return JobEnd(error_text(error), again=IN_PROGRESS)
    except Exception as error:
        again = _transient(error) and not job.options.get("measured")
        ended = JobEnd(error_text(error), again, result=_problem(error))
        # An error of ours says all there is to say; of any other the place is what helps.
        _log.error("%s", ended.error, exc_info=None if isinstance(error, InstepError) else error)
        _queue_detection(app, job, error)
    run = _last_run(app, job)
    return replace(ended, run=run if run != before else "")


def error_text(error: Exception) -> str:
    """Return an error as a job and the log have it."""
    return str(error) if isinstance(error, InstepError) else blot(f"{type(error).__name__}: {error_line(error)}")


def _problem(error: Exception) -> dict[str, Any]:
    """Return the problem that ended a job, for a client that raises it again: the nearest kind that every client
    knows. Of errors that are not ours only the text is known."""
    if not isinstance(error, InstepError):
        return {}
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == InstepError.__module__)
    return {"problem": {"type": kind.__name__, "message": error.message, "hint": error.hint}}


def _transient(error: Exception) -> bool:
    """Return whether retrying may help; errors that are not ours are a driver's or an engine's, most of which pass."""
    return error.transient if isinstance(error, InstepError) else True


def _last_run(app: App, job: Job) -> str:
    run = app.store.runs.latest(job.connection) if job.connection else None
    return run.id if run else ""


def is_final(job: Job, error: Exception) -> bool:
    """Return whether a job that ended so is not tried again."""
    return not _transient(error) or job.attempt >= job.attempts


def _queue_detection(app: App, job: Job, error: Exception) -> None:
    """Queue a detection after a failed sync: the schema may have moved. One that met a deletion that is not
    propagated switches the detector off as a detection does."""
    detector.check_deleted(app.store, job.connection)
    if job.connection and is_unreachable(error):
        app.store.setups.record_result(job.connection, error_text(error))
    if job.kind in _SYNCS and not isinstance(error, Blocked | Conflict | ProjectError):
        detector.on_error(app.store, app.project, job.connection)
    elif job.kind == "detect" and is_final(job, error):
        detector.failed(app.store, job, error_text(error))
    elif job.kind == "rollout" and is_final(job, error):
        given_up(app, job, error_text(error))


def _context(app: App, job: Job) -> SyncContext:
    return replace(app.sync_context(job.connection), who=job.who or job.why or "worker")


def test_connection(app: App, job: Job) -> JobEnd:
    """Test a connection; `options`: source or destination (a name); neither: those of the connection."""
    source, destination = job.options.get("source"), job.options.get("destination")
    if whole := not (source or destination):
        source, destination = app.project.source_of(job.connection), app.project.destination_of(job.connection)
    checks = [*(app.source(source).test() if source else ())]
    if destination:
        theirs = _reached(app, destination)
        app.store.setups.reached(destination, _failed_checks(theirs))
        checks += theirs
    wrong = _failed_checks(checks)
    if whole:
        app.store.setups.tested(job.connection, wrong)
    return JobEnd(result={"checks": [asdict(c) for c in checks], "ok": not wrong})


MOST_TABLES = 1000
"""The most tables of a source that a job's result names."""


def discover(app: App, job: Job) -> Mapping[str, Any]:
    """Discover a source; `options`: source (a name), matching (patterns of tables; none: all). No value of a row is
    in the answer."""
    matching = patterns(job.options.get("matching", ()))
    discovery = app.source(str(job.options["source"])).discover()
    fitting = [
        table for table in discovery.catalog.tables if not matching or any(p.matches(table.path) for p in matching)
    ]
    tables = [
        {
            "table": t.path,
            "kind": t.kind,
            "rows": discovery.stats[t.ref].rows if t.ref in discovery.stats else None,
            "key": list(t.key),
            "columns": len(t.columns),
        }
        for t in fitting[:MOST_TABLES]
    ]
    denied = {".".join(path): why for path, why in sorted(discovery.denied.items())[:MOST_TABLES]}
    return {"tables": tables, "matching": len(fitting), "all": len(discovery.catalog.tables), "denied": denied}


def make_demo(app: App, job: Job) -> Mapping[str, Any]:
    """Create a demo; `options`: folder. A till that an earlier demo has left there is replaced."""
    from instep.project.demo.databases import FILE, create_till

    folder = app.project.root / str(job.options["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).unlink(missing_ok=True)
    create_till(folder)
    return {"file": f"{job.options['folder']}/{FILE}"}


def delete_connection(app: App, job: Job) -> Mapping[str, Any]:
    """Delete a connection; `options`: tables (keep or drop), named (the connection's name again), abandon."""
    from instep.control.connectors import forget_operations
    from instep.sync.operations.delete import leave

    options, context = job.options, replace(app.sync_context(job.connection), who=job.who or "worker")
    table_action: Literal["keep", "drop"] = "drop" if options.get("tables") == "drop" else "keep"
    named, abandon = str(options.get("named", "")), bool(options.get("abandon"))
    left = leave(context, table_action, named=named, abandon=abandon)
    forget_operations(app.project, app.store, job.connection)
    if app.store.objects.get("connection", job.connection):
        app.objects.delete("connection", job.connection)
    return asdict(left)


def _reached(app: App, destination: str) -> list[Check]:
    """Test a destination; one that cannot be opened is recorded as such."""
    try:
        return list(app.destination(destination).lifecycle.test())
    except Exception as error:
        app.store.setups.reached(destination, error_text(error))
        raise


def _failed_checks(checks: list[Check]) -> str:
    """Return what a sync would lack, "" if nothing."""
    return "; ".join(": ".join(filter(None, (c.name, c.detail))) for c in checks if c.needed and not c.ok)


def rollout(app: App, job: Job) -> JobEnd:
    """Run a rollout's turn; `key`: its id; `options`: a course (control/rollouts/course.py)."""
    result = turn(app, job)
    return JobEnd(again=TURN) if result is None else JobEnd(result=result)


def _carried_out(app: App, job: Job) -> JobEnd:
    """Run a job by the function that its operation names: it returns the job's end, or the result with the run that
    it made."""
    if job.options.get("measured"):
        return measured(app, job)
    spec = spec_of(job.kind)
    work, before = work_of(spec), _last_run(app, job)
    done: JobEnd | Mapping[str, Any]
    done = _worked(app, job, spec, work()) if isinstance(work, type) else work(app, job)
    if isinstance(done, JobEnd):
        return done
    run = _last_run(app, job)
    return JobEnd(run=run if run != before else "", result=done)


def _worked(app: App, job: Job, spec: OperationSpec, work: Work | DirectWork) -> JobEnd | Mapping[str, Any]:
    """Run a request, or preview it."""
    context, work.app, work.job = _context(app, job), app, job
    if work.moves_rows:
        work.engine = app.engine(job.connection)
    if isinstance(work, DirectWork):
        return _ran(app, job, work, context, spec.request.of_options(job.options))
    options = {name: value for name, value in job.options.items() if name != "preview"}  # what is shown is carried out
    request = spec.request.of_options(options)
    if job.options.get("preview"):
        return work.prepare(context, request).to_dict()
    if (done := work.already(context, request)) is not None:
        return done
    preview = work.prepare(context, request)
    return {**preview.document, **work.execute(context, preview, tuple(job.options.get("allow", ())))}


def _ran(app: App, job: Job, work: DirectWork, context: SyncContext, request: Request) -> JobEnd:
    """Run an operation without a preview. Viewers read a job's answer, so that no value of a row is in it."""
    check_served(request)
    before = _last_run(app, job)
    answer = work.run(context, request)
    failed, result = work.failure(answer), work.document(answer)
    if job.kind in _SYNCS and result["failed"]:
        detector.on_error(app.store, app.project, job.connection)
    if not failed and job.attempt < job.attempts:
        failed = work.retried(answer)
    run = str(result.get("run") or (_last_run(app, job) if work.makes_run else before))
    return JobEnd(failed, bool(failed), run=run if run != before else "", result=result)
