"""Values and rows that did not fit, as the destination of a connection holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import EntryStatus, LeadsTo, Length, Name, NameText, TableName


@dataclass(frozen=True)
class ListQuarantined(Query):
    """Values and rows in quarantine by table, newest first; not the originals of hashed and excluded columns."""

    connection: Name
    """The connection."""
    table: Annotated[NameText, Length(0, 500)] | None = None
    """Only those of this table (`schema.table`)."""
    all: bool = False
    """Also those that are settled."""
    column: Annotated[NameText, Length(0, 500)] | None = None
    """Only values of this column."""
    run: Name | None = None
    """Only what a run whose id begins so quarantined last."""
    id: Name | None = None
    """Only entries whose ids begin with this."""


@dataclass(frozen=True)
class CountQuarantined(Query):
    """Count values and rows in quarantine by table, column, reason, change and status."""

    connection: Name
    """The connection."""
    table: Annotated[NameText, Length(0, 500)] | None = None
    """Only those of this table (`schema.table`)."""
    all: bool = False
    """Also those that are settled."""
    column: Annotated[NameText, Length(0, 500)] | None = None
    """Only values of this column."""
    run: Name | None = None
    """Only what a run whose id begins so quarantined last."""


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


@dataclass(frozen=True)
class QuarantineItem:
    """A held value or row. Originals of hashed and excluded columns are not here."""

    id: str
    table: str
    """The name of the table now."""
    key: Any = field(repr=False)
    column: str
    """The column; empty for a whole row."""
    original: Any = field(repr=False)
    """A text; of a whole row, an object."""
    reason: str
    change: str
    rule: str
    run: str
    since: datetime
    at: datetime
    status: EntryStatus
    place: str


@dataclass(frozen=True)
class QuarantineGroup:
    """Quarantined values or rows that are alike."""

    table: str
    column: str
    """The column; empty for whole rows."""
    reason: str
    change: str
    status: EntryStatus
    count: int
    """Number of entries."""


@dataclass(frozen=True)
class QuarantineCounts:
    """Counts of what is in quarantine."""

    total: int
    """All of them."""
    newest: datetime | None
    """When the last of them was quarantined; none without any."""
    groups: tuple[QuarantineGroup, ...]
    """By table, column, reason, change and status."""
    unreadable: tuple[str, ...]
    """Table and file of each that cannot be read."""


@dataclass(frozen=True)
class QuarantineOverview:
    """Entries that wait in quarantine by table, and files of it that cannot be read."""

    unreadable: tuple[str, ...]
    """Table and file of each file that cannot be read."""
    waiting: Mapping[str, int]
    """Number of entries that wait, by table."""


@dataclass(frozen=True)
class QuarantineMatches:
    """The quarantined entries of one row."""

    ids: tuple[str, ...]
    """The entries' ids."""


SPECS = (
    QuerySpec(
        "list_quarantined",
        role="operator",
        route="GET /connections/{connection}/quarantine",
        query=ListQuarantined,
        result="instep.operations.queries.quarantine:QuarantineItem",
        work="instep.sync.quarantine.listing:QuarantineItems",
        paged=True,
        page_summary="instep.operations.queries.quarantine:QuarantineOverview",
    ),
    QuerySpec(
        "count_quarantined",
        role="operator",
        route="GET /connections/{connection}/quarantine/counts",
        query=CountQuarantined,
        result="instep.operations.queries.quarantine:QuarantineCounts",
        work="instep.sync.quarantine.listing:QuarantineCounting",
    ),
    QuerySpec(
        "match_quarantined",
        role="approver",
        route="POST /connections/{connection}/quarantine/matches",
        query=MatchQuarantined,
        result="instep.operations.queries.quarantine:QuarantineMatches",
        work="instep.sync.quarantine.listing:QuarantineLookup",
    ),
)
