"""Give a table another key.

Duplicates and NULLs in the new key are counted first, at source and destination; refused if rows would be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import ConsentList, Length, NameList, TableName


@dataclass(frozen=True)
class SetKeyRequest(Request):
    """Table, its new key, and the way to change it."""

    table: TableName
    """The accepted table."""
    key: Annotated[NameList, Length(1, 100)]
    """The columns of the new key, by accepted names."""
    way: Literal["rekey", "rebuild", "clear"] = "rekey"
    """`rekey` keeps the rows; `rebuild` reloads the table and keeps the old rows as a copy; `clear` empties the table
    now and reloads it."""
    allow: ConsentList = ()
    """Patterns of tables that may be emptied."""
    preview: bool = False
    """Show what would happen without changing anything; rows are counted."""


SPEC = OperationSpec(
    "set_key",
    role="approver",
    route="POST /connections/{connection}/set-key",
    request=SetKeyRequest,
    work="instep.sync.operations.set_key:SetKey",
    job=JobPolicy(attempts=1, two_person=True, retry_command="instep table set-key"),
)
