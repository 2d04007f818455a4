"""Sync a connection: detect its changes, apply what policy accepts, load its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import Consent, LeadsTo, Length, NameList

DroppedColumns = Annotated[tuple[Annotated[str, Length(1, 1000)], ...], Length(0, 100_000), LeadsTo("consent")]
"""Columns that a person has named: as many as the tables have."""


@dataclass(frozen=True)
class SyncRequest(Request):
    """Tables to sync, and options."""

    tables: NameList = ()
    """Only these tables (`schema.table`); none: all."""
    full: bool = False
    """Full refresh: read every row again."""
    drop_retained: Consent = False
    """Drop retained columns where a table cannot load with them. Requires the role approver."""
    drop_columns: DroppedColumns = ()
    """Drop these columns (`schema.table.column`) at the destination: the source no longer has them, or they are
    deselected. Requires the role approver."""


SPEC = OperationSpec(
    "sync",
    role="operator",
    route="POST /connections/{connection}/sync",
    request=SyncRequest,
    result="instep.sync.progress:SyncReport",
    work="instep.sync.runs:Sync",
    starts_engine=True,
    job=JobPolicy(attempts=5, runs_while_paused=False, shared=True),
)
