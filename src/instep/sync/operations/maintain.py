"""Maintain the tables of a connection: by command, and after a sync those that it loaded.

A command takes a fence and holds no table with it: its run is over on record as soon as it has begun, and gets its end
when it has one. A load that begins meanwhile claims its tables with a higher fence, and maintenance gives them up.
Within a sync it comes last, when all is recorded; what goes wrong then is a note.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from instep.destinations.base import Layout, Maintained, MaintenanceSpec
from instep.destinations.facets import MaintenanceFacet
from instep.errors import Conflict, Fenced, InstepError
from instep.events import RunEnded, RunStarted, TableMaintained
from instep.model import Run
from instep.operations.repair.maintain import MaintainRequest
from instep.operations.spec import DirectWork
from instep.operations.values import RunStatus
from instep.redaction import error_line
from instep.schema.catalog.catalog import Table
from instep.schema.planning.naming import destination_ref
from instep.schema.selection.selection import Pattern
from instep.suggest import unknown_table
from instep.sync.claim import status_by
from instep.sync.context import Ref, SyncContext
from instep.sync.housekeeping import is_first_today
from instep.sync.loading.engine import Engine
from instep.sync.loading.results import RunOutcome
from instep.sync.progress import Progress, Silent
from instep.sync.schema_changes.owned_tables import check_unmoved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILURES = (InstepError, OSError, ValueError)
"""Errors of maintaining a table; Arrow and Iceberg raise ValueError for a file that is not what it should be."""


@dataclass(frozen=True)
class MaintainedTable:
    """Result of one table's maintenance: `error` is the failure, `left` the reason why it was left to a load."""

    table: str
    done: Maintained = field(default_factory=Maintained)
    seconds: float = 0.0
    error: str = ""
    left: str = ""


@dataclass(frozen=True)
class MaintenanceReport:
    """Report of `instep maintain`."""

    run: str
    tables: tuple[MaintainedTable, ...] = ()
    forgotten: tuple[str, ...] = ()
    """Objects retained for undoing that were purged."""
    vacuumed: tuple[int, int] | None = None
    """Bytes of the destination's file before and after; None where it is no single file."""
    note: str = ""
    """Why nothing applies."""


def maintain(
    context: SyncContext,
    pattern: str,
    on_progress: Progress,
    session: Callable[[], SparkSession | None],
    *,
    dry_run: bool = False,
) -> MaintenanceReport:
    """Maintain the loaded tables that `pattern` names ("": all); paused ones are left alone. Raises RunInProgress
    while a run of the connection is alive, InstepError for a pattern that names no table."""
    check_unmoved(context)
    tables = _named(context, pattern)
    with context.store.transaction():
        run = context.store.runs.claim(context.name, "maintain", context.who)
        context.store.runs.finish(run, "done")
        context.store.events.add(RunStarted(context.name, run.id, run.kind))
    try:
        report = _done(context, run, tables, on_progress, session, dry_run=dry_run)
    except BaseException as error:
        _end(context, run, status_by(error), str(error) if isinstance(error, InstepError) else error_line(error))
        raise
    failed = [f"{t.table}: {t.error}" for t in report.tables if t.error]
    _end(context, run, "partial" if failed else "done", "; ".join(failed))
    return report


class Maintain(DirectWork):
    """The work of the operation `maintain`."""

    moves_rows = True

    def run(self, context: SyncContext, request: MaintainRequest) -> MaintenanceReport:
        """Maintain the tables of the pattern, or say what would be done."""
        progress = self.progress or Silent()
        session = partial(self.engine.spark, progress.step)  # small tables are written in this process
        return maintain(context, request.table, progress, session, dry_run=request.preview)

    def failure(self, result: MaintenanceReport) -> str:
        """Return the errors of tables: the others are maintained all the same."""
        return "\n".join(f"{table.table}: {table.error}" for table in result.tables if table.error)


def _end(context: SyncContext, run: Run, status: RunStatus, error: str) -> None:
    with context.store.transaction():
        context.store.runs.record_result(run, status, error)
        context.store.events.add(RunEnded(context.name, run.id, run.kind, status, error))


def _done(
    context: SyncContext,
    run: Run,
    chosen: list[Table],
    on_progress: Progress,
    session: Callable[[], SparkSession | None],
    *,
    dry_run: bool,
) -> MaintenanceReport:
    if (keeper := context.destination.maintenance) is not None:
        forgotten = [] if dry_run else _forget(context, chosen, run)
        began = _began(run)
        work = MaintenanceSpec(
            context.maintenance, run.id, run.fence, began, dry_run=dry_run, moving=True, session=session
        )
        on_progress.step("maintaining")
        on_progress.tables({t.path: 0 for t in chosen})
        results = tuple(_by_command(context, keeper, table, work, on_progress) for table in chosen)
        return MaintenanceReport(run.id, results, tuple(forgotten))
    if (vacuum := context.destination.lifecycle.vacuum) is not None:
        forgotten = [] if dry_run else _forget(context, chosen, run)
        return MaintenanceReport(run.id, forgotten=tuple(forgotten), vacuumed=vacuum(dry_run))
    return MaintenanceReport(
        run.id, note=f"nothing to do: instep does not maintain {context.destination.kind} destinations"
    )


def layout_of(context: SyncContext, ref: Ref) -> Layout | None:
    """Return a table's files as they are now; None where the destination does not report them."""
    if (keeper := context.destination.maintenance) is not None:
        with suppress(InstepError):
            return keeper.layout(ref)
    return None


def _named(context: SyncContext, pattern: str) -> list[Table]:
    loaded = [t for t in context.store.accepted.catalog(context.name).tables if t.alias]
    tables = [t for t in loaded if not pattern or Pattern(pattern).matches(t.path)]
    if pattern and not tables:
        raise unknown_table(f"connection {context.name} has no table {pattern}", pattern, [t.path for t in loaded])
    return tables


def _forget(context: SyncContext, tables: Sequence[Table], run: Run) -> list[str]:
    keeper = context.destination.maintenance
    gone: list[str] = []
    for table in tables:
        ref = destination_ref(table, context.naming)
        fence = keeper.latest_claim(ref) if keeper else run.fence
        try:
            gone += context.destination.lifecycle.purge_expired([ref], min(fence, run.fence))
        except Fenced:
            continue
    return gone


def _began(run: Run) -> int:
    return int(run.started.timestamp() * 1000)


def _by_command(
    context: SyncContext, keeper: MaintenanceFacet, table: Table, work: MaintenanceSpec, on_progress: Progress
) -> MaintainedTable:
    ref, path = destination_ref(table, context.naming), table.path
    if table.ref in context.store.pauses.tables(context.name):
        return MaintainedTable(path, left="it is paused")
    if not context.destination.schema.inspect([ref]).tables:
        return MaintainedTable(path, left="it is not at the destination")
    fence = keeper.latest_claim(ref)
    if fence > work.fence:
        return MaintainedTable(path, left="a later run is working on it")
    own = replace(
        work,
        fence=fence,
        on_progress=lambda rows, bytes: on_progress.table(path, rows=rows, bytes=bytes, step="writing"),
    )
    result = _one(context, keeper, ref, path, own)
    on_progress.table(path, step="failed" if result.error else "done")
    return result


def _one(context: SyncContext, keeper: MaintenanceFacet, ref: Ref, path: str, work: MaintenanceSpec) -> MaintainedTable:
    """Maintain one table, and record the event."""
    begun = time.monotonic()
    try:
        done = keeper.maintain(ref, work)
    except (Fenced, Conflict):
        return MaintainedTable(
            path, left="it is being loaded and will be maintained next time", seconds=time.monotonic() - begun
        )
    except FAILURES as error:
        return MaintainedTable(path, error=str(error), seconds=time.monotonic() - begun)
    seconds = time.monotonic() - begun
    if done.has_effect and not work.dry_run:
        context.store.events.add(
            TableMaintained(
                context.name,
                work.run,
                path,
                done.files_before,
                done.files,
                done.bytes_before,
                done.bytes,
                done.rewritten,
                done.snapshots,
                done.removed,
                done.orphans,
                round(seconds, 3),
            )
        )
    return MaintainedTable(path, done, seconds)


def maintain_loaded(context: SyncContext, run: Run, outcome: RunOutcome, engine: Engine, on_progress: Progress) -> None:
    """Maintain due tables that this run has loaded, until the time is over; never fails the run. Once a day those
    with a longer history are searched for orphans, too."""
    how = context.maintenance
    if not how.after_sync or (keeper := context.destination.maintenance) is None:
        return
    until = time.monotonic() + how.max_minutes * 60
    tables = {d.load.ref: d.load.table.path for d in outcome.loaded if d.error is None}
    deep = len(context.store.runs.history(context.name, kind="sync", limit=2)) > 1 and is_first_today(context, run)
    work = MaintenanceSpec(
        how,
        run.id,
        run.fence,
        _began(run),
        deep,
        session=partial(engine.spark, on_progress.step),
        go_on=lambda: time.monotonic() < until,
    )
    for path, result in _due(context, keeper, tables, work, on_progress).items():
        if why := result.error or result.left:
            outcome.note(f"{path} was not maintained: {why}")
        elif result.done.rewritten:
            done = result.done
            outcome.note(f"compacted {path}: {done.files_before:,} files → {done.files:,}")


def _due(
    context: SyncContext,
    keeper: MaintenanceFacet,
    tables: Mapping[Ref, str],
    work: MaintenanceSpec,
    on_progress: Progress,
) -> dict[str, MaintainedTable]:
    maintained = {}
    for ref, path in tables.items():
        if not work.go_on():
            break
        try:
            due = work.deep or keeper.due(ref, work.how)
        except FAILURES as error:
            maintained[path] = MaintainedTable(path, error=str(error))
            continue
        if due:
            on_progress.step(f"maintaining {path}")
            maintained[path] = _one(context, keeper, ref, path, work)
    return maintained
