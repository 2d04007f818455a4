"""Sync a connection: detect its changes, apply what policy lets in, load its rows."""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import Consent, NameList


@dataclass(frozen=True)
class SyncRequest(Request):
    """Which tables to sync, and how."""

    tables: NameList = ()
    """Only these tables (`schema.table`); none: all."""
    full: bool = False
    """Read every row again."""
    drop_retained: Consent = False
    """Drop columns that the source has dropped, where that is needed. Takes an approver."""


SPEC = OperationSpec(
    "sync",
    role="operator",
    route="POST /connections/{connection}/sync",
    request=SyncRequest,
    work="instep.worker.perform:sync",
    job=JobPolicy(attempts=5, runs_while_paused=False, shared=True),
)
