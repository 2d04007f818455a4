"""List the snapshots that a table can be restored to.

The job's result has them, newest first.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import OperationSpec, Request
from instep.operations.values import TableName


@dataclass(frozen=True)
class ListSavepointsRequest(Request):
    """The table."""

    table: TableName
    """The accepted table."""


SPEC = OperationSpec(
    "list_savepoints",
    role="operator",
    route="POST /connections/{connection}/savepoints",
    request=ListSavepointsRequest,
    result="instep.sync.operations.restore:SavepointList",
    work="instep.sync.operations.restore:ListSavepoints",
)
