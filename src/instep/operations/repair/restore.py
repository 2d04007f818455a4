"""Roll a table's rows and its cursor back to an earlier snapshot.

The schema and the source stay as they are. Refused unless `allow` names the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import ConsentList, Snapshot, TableName


@dataclass(frozen=True)
class RestoreRequest(Request):
    """Table to restore, and its snapshot: exactly one of `snapshot` and `at`."""

    table: TableName
    """The accepted table."""
    snapshot: Snapshot | None = None
    """The id of the snapshot."""
    at: datetime | None = None
    """Restore the latest snapshot at this time; UTC without an offset."""
    allow: ConsentList = ()
    """Patterns of tables that may be restored."""
    preview: bool = False
    """Show what would happen without changing anything."""
    base: Snapshot | None = None
    """The table's current snapshot according to the preview; the restore is refused if the table has moved on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.snapshot is None) == (self.at is None):
            raise ValueError("name one: `snapshot` or `at`")


SPEC = OperationSpec(
    "restore",
    role="approver",
    route="POST /connections/{connection}/restore",
    request=RestoreRequest,
    work="instep.sync.operations.restore:Restore",
    job=JobPolicy(attempts=1, two_person=True, retry_command="instep restore"),
)
