"""Remove every trace of quarantined entries.

Discarding keeps a record without the original; erasing keeps nothing. The job's result counts the entries as `erased`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import OperationSpec, Request
from instep.operations.values import ConsentIds, Length, TableName


@dataclass(frozen=True)
class EraseRequest(Request):
    """Quarantine entries of one table to erase."""

    table: TableName
    """The accepted table."""
    ids: Annotated[ConsentIds, Length(1, 10_000)]
    """Full ids of the entries."""


SPEC = OperationSpec(
    "erase",
    role="approver",
    route="POST /connections/{connection}/quarantine/erase",
    request=EraseRequest,
    result="instep.sync.quarantine.quarantine:EraseReport",
    work="instep.sync.quarantine.quarantine:Erase",
)
