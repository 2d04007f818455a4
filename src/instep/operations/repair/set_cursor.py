"""Give a table another cursor, or none.

The column's type and NULLs are checked first; the next sync starts over with the new cursor.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import Name, SettingText, TableName


@dataclass(frozen=True)
class SetCursorRequest(Request):
    """Table and its new cursor."""

    table: TableName
    """The accepted table."""
    column: Name | None = None
    """Column of the new cursor; none: each sync reads the whole table."""
    start: SettingText = ""
    """Start value of the first read."""
    preview: bool = False
    """Show what would happen without changing anything."""


SPEC = OperationSpec(
    "set_cursor",
    role="approver",
    route="POST /connections/{connection}/set-cursor",
    request=SetCursorRequest,
    work="instep.sync.operations.set_cursor:SetCursor",
    job=JobPolicy(attempts=1, two_person=True, retry_command="instep table set-cursor"),
)
