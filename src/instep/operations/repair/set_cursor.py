"""Give a table another cursor, or none.

Its type and its NULLs are checked first; the next sync begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import Name, SettingText, TableName


@dataclass(frozen=True)
class SetCursorRequest(Request):
    """The table and its new cursor."""

    table: TableName
    """The accepted table."""
    column: Name | None = None
    """The column of the new cursor; none: each sync reads the whole table."""
    start: SettingText = ""
    """The value that the first read begins at."""
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
