"""Run connections in this process, one after the other, each with its recorded result: what a rollout asks
for, and what a worker does for a job of one.

The work of the operations `sync` and `backfill`: one run of a connection over its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from instep.errors import InstepError
from instep.model import Measure, RunOutcome, TableHealth
from instep.operations.everyday.backfill import BackfillRequest
from instep.operations.everyday.sync import SyncRequest
from instep.operations.spec import DirectWork
from instep.redaction import error_line
from instep.schema.catalog.catalog import Table
from instep.schema.planning.naming import destination_ref
from instep.store.catalogs.backfills import BY_PERSON
from instep.sync.context import SyncContext
from instep.sync.loading.engine import Engine
from instep.sync.loading.results import RunScope
from instep.sync.progress import SyncReport
from instep.sync.run import sync
from instep.sync.schema_changes.backfill_plan import check_columns
from instep.sync.schema_changes.evolve import preview
from instep.sync.schema_changes.undo import apply_undo, find, prepare, undone

COUNTED_ROWS = 1_000_000
"""Rows up to which NULLs of a table are counted: all its columns are read for it, twice."""


@dataclass(frozen=True)
class InProcess:
    """`context` and `engine` put together what the run of one connection needs. What goes wrong with one is its
    outcome, and no error; only what ends the process comes through."""

    lanes: ClassVar[int] = 1
    context: Callable[[str], SyncContext]
    engine: Callable[[str], Engine]

    def detect(self, connection: str, key: str) -> RunOutcome:
        """Detect and record the source's changes, and pause what policy pauses."""
        return _outcome(lambda: _looked(self.context(connection)))

    def sync(self, connection: str, key: str, *, measured: bool) -> RunOutcome:
        """Return one sync, with each table's rows before and after; `measured`: and their NULLs."""
        return _outcome(lambda: measured_sync(self.context(connection), self.engine(connection), nulls=measured))

    def undo(self, connection: str, change: str, key: str) -> RunOutcome:
        """Take an applied change back; done, too, if it was taken back before. Drops nothing."""
        return _outcome(lambda: undo(self.context(connection), change))

    def wait(self) -> None:
        """No-op: no work runs beside the caller."""


def _outcome(run: Callable[[], RunOutcome]) -> RunOutcome:
    try:
        return run()
    except InstepError as error:
        return RunOutcome("", "failed", f"{error.message}; {error.hint}".rstrip("; "))
    except Exception as error:
        return RunOutcome("", "failed", f"{type(error).__name__}: {error_line(error)}")


def _looked(context: SyncContext) -> RunOutcome:
    preview(context, count=True, pauses=True)
    return RunOutcome("", "done")


def undo(context: SyncContext, change: str) -> RunOutcome:
    """Take an applied change back; done, too, if it was taken back before. Raises what an undo raises."""
    if undone(context, change) is None:
        apply_undo(context, prepare(context, find(context, change)))
    return RunOutcome("", "done")


def measured_sync(context: SyncContext, engine: Engine, *, nulls: bool) -> RunOutcome:
    """Return one sync with what it did to each table's rows. Raises what a sync raises."""
    before = measures(context, nulls=nulls)
    report = sync(context, engine=engine)
    after = measures(context, nulls=nulls)
    runs = {".".join(filter(None, t.table)): t for t in report.tables}
    tables = {
        path: TableHealth(run.read, run.invalid_values, before.get(path), after.get(path)) for path, run in runs.items()
    }
    return RunOutcome(report.run, report.status, _error(report), tables)


def _error(report: SyncReport) -> str:
    failed = [t for t in report.tables if t.status == "failed"]
    return "; ".join(f"{'.'.join(filter(None, t.table))}: {t.error}" for t in failed)


def measures(context: SyncContext, *, nulls: bool) -> dict[str, Measure]:
    """Return path -> rows at the destination, for the accepted tables that were loaded; with `nulls` how many rows
    have NULL in each column, for tables that are not large."""
    tables = [t for t in context.store.accepted.catalog(context.name).tables if not t.retained]
    with context.destination_open():
        return {t.path: measure for t in tables if (measure := _measure(context, t, nulls)) is not None}


def _measure(context: SyncContext, table: Table, nulls: bool) -> Measure | None:
    ref = destination_ref(table, context.naming)
    state = context.destination.schema.state(ref)
    if state is None:
        return None
    return Measure(state.rows, _nulls(context, ref) if nulls and state.rows <= COUNTED_ROWS else {})


def _nulls(context: SyncContext, ref: tuple[str, str]) -> dict[str, int]:
    rows = context.destination.write.read(ref)
    counts = {name: 0 for name in rows.schema.names if not name.startswith(context.naming.prefix)}
    for batch in rows:
        for name in counts:
            counts[name] += batch.column(name).null_count
    return counts


class RunTables(DirectWork):
    """A run that answers a report."""

    moves_rows = True

    def document(self, result: SyncReport) -> Mapping[str, Any]:
        """Return the job's record of the report: its tables are those of the run."""
        return {
            "run": result.run,
            "status": result.status,
            "tables": len(result.tables),
            "failed": [f"{'.'.join(filter(None, t.table))}: {t.error}" for t in result.tables if t.status == "failed"],
            "notes": list(result.notes),
            "applied": list(result.applied),
            "waiting": list(result.waiting),
            "seconds": result.seconds,
            "casts": dict(result.casts),
            "retryable": list(result.retryable),
            "unread": list(result.unread),
        }

    def failure(self, result: SyncReport) -> str:
        """Return the errors of a run that failed; one table's alone leave the others loaded."""
        return "\n".join(self.document(result)["failed"]) if result.status == "failed" else ""

    def retried(self, result: SyncReport) -> str:
        """Return the errors of a run that is worth another attempt, though other tables are loaded; "" if it is not."""
        return "\n".join(self.document(result)["failed"]) if result.retryable else ""


class Sync(RunTables):
    """The work of the operation `sync`."""

    def run(self, context: SyncContext, request: SyncRequest) -> SyncReport:
        """Bring the destination in step with the source."""
        scope = RunScope(
            frozenset(request.tables),
            request.full,
            request.drop_retained,
            drop_columns=frozenset(request.drop_columns),
        )
        return sync(context, scope, self.progress, self.engine)


class BackfillTable(RunTables):
    """The work of the operation `backfill`."""

    def begin(self, context: SyncContext, request: BackfillRequest) -> BackfillRequest:
        """Request that the columns are filled; raises InstepError for one that does not exist or cannot be filled by
        itself."""
        if not request.columns:
            return request
        table, names = check_columns(context, request.table, request.columns)
        for name in names:
            context.store.backfills.request(context.name, table.ref, column=name, why=f"{BY_PERSON}{context.who}")
        return replace(request, columns=names)

    def run(self, context: SyncContext, request: BackfillRequest) -> SyncReport:
        """Read the table again as a whole, or fill those of its columns that are wanted."""
        tables, columns = frozenset((request.table,)), tuple(request.columns)
        scope = RunScope(tables, full=not columns, kind="backfill", columns=columns)
        return sync(context, scope, self.progress, self.engine)
