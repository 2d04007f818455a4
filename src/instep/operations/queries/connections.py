"""Connections, and how each fares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import LeadsTo, Length, Name

Text = Annotated[str, Length(0, 200), LeadsTo("name")]


@dataclass(frozen=True)
class ListConnections(Query):
    """List connections by name."""

    tag: Text | None = None
    """Only connections with this tag."""
    search: Text | None = None
    """Only names that contain this text."""


@dataclass(frozen=True)
class GetConnection(Query):
    """Return one connection with its pauses."""

    connection: Name
    """The connection."""


@dataclass(frozen=True)
class ListStatus(Query):
    """How every connection stands, by name."""


@dataclass(frozen=True)
class GetStatus(Query):
    """Last run, pauses, waiting changes, how each table fared last, backfills that are wanted, what is held. Without
    the state of a source's log: the server opens no source."""

    connection: Name
    """The connection."""


SPECS = (
    QuerySpec(
        "list_connections",
        role="viewer",
        route="GET /connections",
        query=ListConnections,
        result="instep.control.queries.connections:ConnectionSummary",
        work="instep.control.queries.connections:ConnectionList",
        paged=True,
    ),
    QuerySpec(
        "get_connection",
        role="viewer",
        route="GET /connections/{connection}",
        query=GetConnection,
        result="instep.control.queries.connections:ConnectionDetails",
        work="instep.control.queries.connections:ConnectionLookup",
    ),
    QuerySpec(
        "list_status",
        role="viewer",
        route="GET /status",
        query=ListStatus,
        result="instep.bootstrap.status:ConnectionStatus",
        work="instep.bootstrap.status:StatusList",
        paged=True,
        page_size=50,
        largest_page=100,
    ),
    QuerySpec(
        "get_status",
        role="viewer",
        route="GET /connections/{connection}/status",
        query=GetStatus,
        result="instep.bootstrap.status:ConnectionStatus",
        work="instep.bootstrap.status:StatusLookup",
    ),
)
