"""Cancelling the backfills of a table, in the store alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from instep.control import backfills
from instep.control.immediate.context import WriteContext
from instep.operations.immediate.backfills import CancelBackfillRequest
from instep.operations.spec import ImmediateWork


class BackfillCancellation(ImmediateWork):
    """Cancel what waits or runs for a table, and the jobs that would do it."""

    def execute(self, context: WriteContext, request: CancelBackfillRequest, prepared: None) -> backfills.Cancelled:
        """Cancel it; NotFound for a table or a column that is not accepted."""
        table = backfills.accepted_table(context.store, request.connection, request.table, request.columns)
        return backfills.cancel(context.store, request.connection, table, request.columns, context.who)

    def detail(self, request: CancelBackfillRequest, result: backfills.Cancelled) -> Mapping[str, Any]:
        """Return the table, its columns, and the jobs that ended."""
        return {"table": request.table, "columns": request.columns, "jobs": result.jobs}
