"""Correct the rows in which one table differs from its source, and no others.

The job's result says what was inserted, updated and deleted, and in `verdict` how the table compares with its source
afterwards; it counts rows and does not name them. Rows are removed only if `allow` names the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import OperationSpec, Request
from instep.operations.values import ConsentList, TableName


@dataclass(frozen=True)
class RepairRequest(Request):
    """The table, and whether rows may go that its source does not have."""

    table: TableName
    """The accepted table."""
    allow: ConsentList = ()
    """Patterns of tables whose rows may be removed where the source has none. Takes an approver."""
    preview: bool = False
    """Show what would happen without changing anything."""
    shown: bool = False
    """The preview was shown: rows are compared once, when they are repaired."""


SPEC = OperationSpec(
    "repair",
    role="operator",
    route="POST /connections/{connection}/repair",
    request=RepairRequest,
    work="instep.sync.operations.repair:Repair",
)
