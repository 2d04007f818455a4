"""Cancel the backfills of a table."""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import ImmediateRequest, ImmediateSpec
from instep.operations.values import Name, NameList, TableName


@dataclass(frozen=True)
class CancelBackfillRequest(ImmediateRequest):
    """Cancel what waits or runs for a table, or for some of its columns. A backfill that runs stops at its next file;
    what was filled stays."""

    connection: Name
    """The connection."""
    table: TableName
    """The accepted table."""
    columns: NameList = ()
    """Only these columns; none: all that waits or runs for the table."""


SPEC = ImmediateSpec(
    "cancel_backfill",
    role="operator",
    route="POST /connections/{connection}/backfills/cancel",
    request=CancelBackfillRequest,
    result="instep.control.backfills:Cancelled",
    work="instep.control.immediate.backfills:BackfillCancellation",
    audit="connection.backfill_cancel",
    target="connection",
)
