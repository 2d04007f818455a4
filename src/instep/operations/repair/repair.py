"""Correct the rows in which one table differs from its source, and no others.

The job's result counts the inserted, updated and deleted rows, and `verdict` compares the table with its source
afterwards; rows are not named. Rows are deleted only if `allow` names the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import OperationSpec, Request
from instep.operations.values import ConsentList, TableName


@dataclass(frozen=True)
class RepairRequest(Request):
    """Table to repair, and permission to delete rows that the source does not have."""

    table: TableName
    """The accepted table."""
    allow: ConsentList = ()
    """Patterns of tables in which rows that the source does not have may be deleted. Requires the role approver."""
    preview: bool = False
    """Show what would happen without changing anything."""
    shown: bool = False
    """True if the preview was shown already: rows are then compared once, during the repair."""


SPEC = OperationSpec(
    "repair",
    role="operator",
    route="POST /connections/{connection}/repair",
    request=RepairRequest,
    work="instep.sync.operations.repair:Repair",
)
