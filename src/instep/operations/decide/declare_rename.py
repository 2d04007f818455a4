"""Declare that a removal and an addition are one rename.

The two are columns or tables. With `preview` the job only says what that does.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import Name


@dataclass(frozen=True)
class DeclareRenameRequest(Request):
    """The old and the new name: `schema.table` twice, or `schema.table.column` twice."""

    old: Name
    """The name that went."""
    new: Name
    """The name that came."""
    preview: bool = False
    """Show what would happen without changing anything."""


SPEC = OperationSpec(
    "declare_rename",
    role="approver",
    route="POST /connections/{connection}/declare-rename",
    request=DeclareRenameRequest,
    work="instep.sync.operations.declare_rename:DeclareRename",
    job=JobPolicy(attempts=1),
)
