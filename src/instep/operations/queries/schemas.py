"""Schemas: what they are, what they were, and the history of one table or column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.kinds import Side
from instep.operations.spec import Query, QuerySpec
from instep.operations.values import Length, Name, NumberRange, SettingText


@dataclass(frozen=True)
class GetSchema(Query):
    """Return a schema, now or at an earlier time, with the copies retained beside its tables."""

    connection: Name
    """The connection."""
    side: Side = "accepted"
    """The side: source, accepted or destination."""
    at: Annotated[SettingText, Length(0, 50)] | None = None
    """A time (ISO 8601), or a version: 7 or 2.1."""


@dataclass(frozen=True)
class ListVersions(Query):
    """List versions of a connection's schemas, newest first."""

    connection: Name
    """The connection."""
    side: Side = "accepted"
    """The side: source, accepted or destination."""


@dataclass(frozen=True)
class GetVersion(Query):
    """Return one version of a schema."""

    connection: Name
    """The connection."""
    version: Annotated[int, NumberRange(0, 2**31 - 1)]
    """The version's number on its side."""
    side: Side = "accepted"
    """The side: source, accepted or destination."""


@dataclass(frozen=True)
class GetObjectHistory(Query):
    """Return the names and all changes of one table or column, oldest first."""

    connection: Name
    """The connection."""
    of: Annotated[Name, Length(1, 500)]
    """`schema.table` or `schema.table.column`."""


SPECS = (
    QuerySpec(
        "get_schema",
        role="viewer",
        route="GET /connections/{connection}/schema",
        query=GetSchema,
        result="instep.control.queries.schemas:SchemaDocument",
        work="instep.control.queries.schemas:SchemaAsOf",
    ),
    QuerySpec(
        "list_versions",
        role="viewer",
        route="GET /connections/{connection}/history",
        query=ListVersions,
        result="instep.control.schema_history:SchemaVersion",
        work="instep.control.queries.schemas:VersionList",
        paged=True,
    ),
    QuerySpec(
        "get_version",
        role="viewer",
        route="GET /connections/{connection}/history/{version}",
        query=GetVersion,
        result="instep.control.queries.schemas:SchemaDocument",
        work="instep.control.queries.schemas:VersionDetails",
    ),
    QuerySpec(
        "get_object_history",
        role="viewer",
        route="GET /connections/{connection}/trail",
        query=GetObjectHistory,
        result="instep.control.object_history:ObjectHistory",
        work="instep.control.queries.schemas:ObjectDetails",
    ),
)
