"""Declare that a removal and an addition are one rename.

Both are columns, or both are tables. With `preview` the job shows the effect without changing anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import Name


@dataclass(frozen=True)
class DeclareRenameRequest(Request):
    """The old and the new name: `schema.table` twice, or `schema.table.column` twice."""

    old: Name
    """The old name."""
    new: Name
    """The new name."""
    preview: bool = False
    """Show what would happen without changing anything."""


SPEC = OperationSpec(
    "declare_rename",
    role="approver",
    route="POST /connections/{connection}/declare-rename",
    request=DeclareRenameRequest,
    work="instep.sync.schema_changes.declare_column_rename:DeclareRename",
    job=JobPolicy(attempts=1),
)
