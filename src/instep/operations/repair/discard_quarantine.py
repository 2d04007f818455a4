"""Delete the originals of quarantined values; their rows stay as they are.

The job's result counts the entries and has the first of their ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from instep.operations.spec import JobPolicy, OperationSpec, Request
from instep.operations.values import ConsentIds, ConsentList


@dataclass(frozen=True)
class DiscardQuarantineRequest(Request):
    """Quarantine entries to discard, by table or by id."""

    tables: ConsentList = ()
    """All entries of these tables (`schema.table`)."""
    ids: ConsentIds = ()
    """The entries with these ids."""
    until: datetime | None = None
    """Only entries that were quarantined at this time or earlier."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.tables or self.ids):
            raise ValueError("name `tables` or `ids` to be discarded")


SPEC = OperationSpec(
    "discard_quarantine",
    role="approver",
    route="POST /connections/{connection}/quarantine/discard",
    request=DiscardQuarantineRequest,
    result="instep.sync.quarantine.quarantine:DiscardReport",
    work="instep.sync.quarantine.quarantine:DiscardQuarantine",
    job=JobPolicy(two_person=True, retry_command="instep quarantine discard"),
)
