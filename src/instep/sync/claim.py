"""Claim a connection for one run, keep its lease alive, and record the run's end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from instep.crash import crashpoint
from instep.errors import Blocked, InstepError, argument, is_unreachable
from instep.events import RunEnded, RunStarted
from instep.logs import bound
from instep.model import Pause, Run, TableRun
from instep.operations.values import RunKind, RunStatus
from instep.redaction import error_line
from instep.spans import span, tell
from instep.store.work.runs import SYNCS, Heartbeat
from instep.sync.context import SyncContext


def resume_hint(connection: str, pause: Pause) -> str:
    """Return what ends a pause: a decision, if a change has caused it."""
    table = f" --table {argument('.'.join(filter(None, pause.table)))}" if pause.table else ""
    command = f"`instep resume {argument(connection)}{table}`"
    return f"see `instep changes show {pause.change}`, decide, then {command}" if pause.change else f"{command} ends it"


@contextmanager
def claimed(context: SyncContext, kind: RunKind, *, paused_too: bool = False) -> Iterator[Run]:
    """Open a run of the connection, kept alive by a heartbeat and ended with its outcome. `paused_too`: it may run
    while the connection is paused."""
    if (paused := context.store.pauses.connection(context.name)) and not paused_too:
        raise Blocked(
            f"connection {context.name} has been paused since {paused.since:%Y-%m-%d %H:%M} UTC: {paused.reason}",
            hint=resume_hint(context.name, paused),
        )
    crashpoint("sync.claim.before")
    run = context.store.runs.claim(context.name, kind, context.who)
    crashpoint("sync.claim.after")
    with bound(connection=context.name, run=run.id), span(kind, who=context.who):
        context.store.events.add(RunStarted(context.name, run.id, kind))
        try:
            with Heartbeat(context.store.runs, run):
                if kind != "delete":
                    context.destination.lifecycle.check_writable()
                yield run
        except BaseException as error:
            _end(context, run, status_by(error), text := _reason(error))
            if is_unreachable(error):
                context.store.setups.record_result(context.name, text)
            raise
        status = status_of(context.store.runs.tables(run.id))
        tell(status=status)
        _end(context, run, status, "")
        crashpoint("sync.done.after")


def _end(context: SyncContext, run: Run, status: RunStatus, error: str) -> None:
    with context.store.transaction(context.name):
        context.store.runs.finish(run, status, error)
        context.store.events.add(RunEnded(context.name, run.id, run.kind, status, error))
        if status == "done" and run.kind in SYNCS:
            context.store.setups.record_result(context.name, "")
            context.store.setups.reached(context.destination_name)


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted: run the command again"
    return str(error) if isinstance(error, InstepError) else error_line(error)


def status_by(error: BaseException) -> RunStatus:
    """Return the status of a run that ends with this error."""
    if isinstance(error, Blocked):
        return "blocked"
    return "cancelled" if isinstance(error, KeyboardInterrupt) else "failed"


def status_of(tables: Sequence[TableRun]) -> RunStatus:
    failures = sum(t.status == "failed" for t in tables)
    if not failures:
        return "done"
    return "failed" if failures == len(tables) else "partial"
