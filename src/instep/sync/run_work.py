"""The work of the operations `sync` and `backfill`: one run of a connection over its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from instep.operations.everyday.backfill import BackfillRequest
from instep.operations.everyday.sync import SyncRequest
from instep.operations.spec import DirectWork
from instep.sync.context import SyncContext
from instep.sync.loading.results import RunScope
from instep.sync.progress import SyncReport
from instep.sync.run import sync
from instep.sync.schema_changes.backfill_plan import check_columns


class RunTables(DirectWork):
    """A run that answers a report."""

    moves_rows = True

    def document(self, result: SyncReport) -> Mapping[str, Any]:
        """Return what a job keeps of the report: its tables are those of the run."""
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
        }

    def failure(self, result: SyncReport) -> str:
        """Return the errors of a run that failed; one table's alone leave the others loaded."""
        return "\n".join(self.document(result)["failed"]) if result.status == "failed" else ""


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
        """Want the columns to be filled; InstepError for one that is not there or cannot be filled by itself."""
        if not request.columns:
            return request
        table, names = check_columns(context, request.table, request.columns)
        for name in names:
            context.store.backfills.want(context.name, table.ref, column=name, why=f"asked for by {context.who}")
        return replace(request, columns=names)

    def run(self, context: SyncContext, request: BackfillRequest) -> SyncReport:
        """Read the table again as a whole, or fill those of its columns that are wanted."""
        tables, columns = frozenset((request.table,)), tuple(request.columns)
        scope = RunScope(tables, full=not columns, kind="backfill", columns=columns)
        return sync(context, scope, self.progress, self.engine)
