"""Compact files, remove deleted rows, expire snapshots and delete orphan files.

No row changes. The job's result has the outcome per table; with `preview` it shows what would be done.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import OperationSpec, Request
from instep.operations.values import NameText


@dataclass(frozen=True)
class MaintainRequest(Request):
    """Tables to maintain."""

    table: NameText = ""
    """Only tables (`schema.table`) that match this pattern; none: all."""
    preview: bool = False
    """Show what would happen without changing anything."""


SPEC = OperationSpec(
    "maintain",
    role="operator",
    route="POST /connections/{connection}/maintain",
    request=MaintainRequest,
    result="instep.sync.operations.maintain:MaintenanceReport",
    work="instep.sync.operations.maintain:Maintain",
)
