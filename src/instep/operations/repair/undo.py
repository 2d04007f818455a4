"""Take back an applied change, or all changes of a run or a plan.

With `preview` the job only says what that does.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import ConsentList, Name


@dataclass(frozen=True)
class UndoRequest(Request):
    """What to take back."""

    what: Name
    """The id of a change, a run or a plan."""
    allow: ConsentList = ()
    """Patterns of what may be dropped."""
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
