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
)
