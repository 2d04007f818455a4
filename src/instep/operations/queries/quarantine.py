"""Values and rows that did not fit, as the destination of a connection holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import LeadsTo, Length, Name, NameText, TableName


@dataclass(frozen=True)
class ListQuarantined(Query):
    """Values and rows in quarantine by table and id; not the originals of hashed and excluded columns."""

    connection: Name
    """The connection."""
    table: Annotated[NameText, Length(0, 500)] | None = None
    """Only those of this table (`schema.table`)."""
    all: bool = False
    """Also those that are settled."""


@dataclass(frozen=True)
class MatchQuarantined(Query):
    """The ids of what is held of a row, settled entries too; refused while a run of the connection is alive, which may
    hold more of it. The key is kept nowhere: not in an address, not in the audit log."""

    connection: Name
    """The connection."""
    table: TableName
    """The accepted table."""
    key: Annotated[dict[Name, Annotated[str, Length(0, 10_000)] | None], Length(1, 100), LeadsTo("name")] = field(
        repr=False
    )
    """Texts by column, as they are held; null for NULL."""


SPECS = (
    QuerySpec(
        "list_quarantined",
        role="operator",
        route="GET /connections/{connection}/quarantine",
        query=ListQuarantined,
        result="instep.sync.quarantine.listing:QuarantineItem",
        work="instep.sync.quarantine.listing:QuarantineItems",
        paged=True,
        beside="instep.sync.quarantine.listing:UnreadableFiles",
    ),
    QuerySpec(
        "match_quarantined",
        role="approver",
        route="POST /connections/{connection}/quarantine/matches",
        query=MatchQuarantined,
        result="instep.sync.quarantine.listing:QuarantineMatches",
        work="instep.sync.quarantine.listing:QuarantineLookup",
    ),
)
