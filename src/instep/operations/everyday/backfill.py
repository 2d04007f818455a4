"""Reload a table, or fill single columns in rows that were loaded before."""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import NameList, TableName


@dataclass(frozen=True)
class BackfillRequest(Request):
    """Table to backfill, and its columns."""

    table: TableName
    """The accepted table."""
    columns: NameList = ()
    """Fill only these columns where rows have NULL; none: reload the whole table."""


SPEC = OperationSpec(
    "backfill",
    role="operator",
    route="POST /connections/{connection}/backfills",
    request=BackfillRequest,
    result="instep.sync.progress:SyncReport",
    work="instep.sync.runs:BackfillTable",
    starts_engine=True,
    job=JobPolicy(attempts=5, runs_while_paused=False, shared=True),
)
