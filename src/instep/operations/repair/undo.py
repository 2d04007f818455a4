"""Undo an applied change, or all changes of a run or a plan.

With `preview` the job shows the effect without changing anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import ConsentList, Name


@dataclass(frozen=True)
class UndoRequest(Request):
    """Change, run or plan to undo."""

    what: Name
    """Id of a change, a run or a plan."""
    allow: ConsentList = ()
    """Patterns of objects that may be dropped."""
    preview: bool = False
    """Show what would happen without changing anything."""


SPEC = OperationSpec(
    "undo",
    role="approver",
    route="POST /connections/{connection}/undo",
    request=UndoRequest,
    work="instep.sync.schema_changes.undo:UndoChanges",
    job=JobPolicy(two_person=True, retry_command="instep undo"),
)
