"""Write quarantined values that fit now back into their rows.

A newer value stays. The job's result counts the values by table.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import OperationSpec, Request
from instep.operations.values import NameList, NameText


@dataclass(frozen=True)
class ReplayQuarantineRequest(Request):
    """Quarantined values to replay."""

    tables: NameList = ()
    """Only these tables (`schema.table`); none: all."""
    column: NameText = ""
    """Only values of this column; none: all."""
    preview: bool = False
    """Show what would happen without changing anything."""


SPEC = OperationSpec(
    "replay_quarantine",
    role="operator",
    route="POST /connections/{connection}/quarantine/replay",
    request=ReplayQuarantineRequest,
    result="instep.sync.quarantine.replay:ReplayReport",
    work="instep.sync.quarantine.replay:ReplayQuarantine",
)
