"""Remove every trace of quarantined entries.

An entry that was only discarded is remembered without its original. The job's result counts them as `erased`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import OperationSpec, Request
from instep.operations.values import ConsentIds, Length, TableName


@dataclass(frozen=True)
class EraseRequest(Request):
    """The entries of one table."""

    table: TableName
    """The accepted table."""
    ids: Annotated[ConsentIds, Length(1, 10_000)]
    """Their whole ids."""


SPEC = OperationSpec(
    "erase",
    role="approver",
    route="POST /connections/{connection}/quarantine/erase",
    request=EraseRequest,
    result="instep.sync.quarantine.quarantine:EraseReport",
    work="instep.sync.quarantine.quarantine:Erase",
)
