"""Cancel the backfills of a table."""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import ImmediateRequest, ImmediateSpec
from instep.operations.values import Name, NameList, TableName


@dataclass(frozen=True)
class CancelBackfillRequest(ImmediateRequest):
    """Cancel pending and running backfills of a table or of some of its columns. A running backfill stops at its next
    file; filled values stay."""

    connection: Name
    """The connection."""
    table: TableName
    """The accepted table."""
    columns: NameList = ()
    """Only backfills of these columns; none: all backfills of the table."""


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
