"""Queries for the changed tables of a connection, and for one of them before, now and afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import Name, NameText


@dataclass(frozen=True)
class ListChangedTables(Query):
    """List the tables of a connection with unsettled changes, by name, with their numbers."""

    connection: Name
    """The connection."""


@dataclass(frozen=True)
class CompareTable(Query):
    """Compare a table's columns as accepted, as the source has them now, and as the destination will have them."""

    connection: Name
    """The connection."""
    table: Name
    """The table's name."""
    table_schema: NameText = ""
    """The table's schema; "" for one without schemas."""


SPECS = (
    QuerySpec(
        "list_changed_tables",
        role="viewer",
        route="GET /connections/{connection}/changed-tables",
        query=ListChangedTables,
        result="instep.store.server.change_pages:ChangedTable",
        work="instep.control.queries.comparison:ChangedTables",
        paged=True,
    ),
    QuerySpec(
        "compare_table",
        role="viewer",
        route="GET /connections/{connection}/comparison",
        query=CompareTable,
        result="instep.control.queries.comparison:TableComparison",
        work="instep.control.queries.comparison:ComparedTable",
    ),
)
