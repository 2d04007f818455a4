"""Queries for the schema of a connection as a tree: its tables, the columns of one, and the matches of a pattern."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import LeadsTo, Length, Name

SelectionState = Literal["all", "enabled", "disabled", "new", "excluded", "unsupported", "switched"]
Search = Annotated[str, Length(0, 500), LeadsTo("name")]


@dataclass(frozen=True)
class ListSelectedTables(Query):
    """List the tables of a connection with their selection, by schema and name. Empty before the first detection."""

    connection: Name
    """The connection."""
    search: Search = ""
    """A part of a table's or a column's name, or a regular expression for a whole path after `re:`."""
    state: SelectionState = "all"
    """Only tables in this state, or with a column in it. new: found at the source, and neither accepted nor rejected;
    excluded: kept out by the project file; unsupported: it may not be read, or its name cannot be used; switched: by a
    person."""


@dataclass(frozen=True)
class ListSelectedColumns(Query):
    """List the columns of one table with their selection, keys and types on both sides."""

    connection: Name
    """The connection."""
    table: Annotated[Name, Length(1, 500)]
    """`schema.table`."""


@dataclass(frozen=True)
class MatchPattern(Query):
    """Return the tables and columns that a pattern matches."""

    connection: Name
    """The connection."""
    pattern: Annotated[Name, Length(1, 500)]
    """A name, a glob, or a regular expression after `re:`, for `schema.table` or `schema.table.column`."""


SPECS = (
    QuerySpec(
        "list_selected_tables",
        role="viewer",
        route="GET /connections/{connection}/selection/tables",
        query=ListSelectedTables,
        result="instep.control.queries.schema_tree:SelectedTable",
        work="instep.control.queries.schema_tree:SelectedTables",
        paged=True,
        page_summary="instep.control.queries.schema_tree:SelectionTotals",
        page_size=50,
        largest_page=200,
    ),
    QuerySpec(
        "list_selected_columns",
        role="viewer",
        route="GET /connections/{connection}/selection/columns",
        query=ListSelectedColumns,
        result="instep.control.queries.schema_tree:SelectedColumn",
        work="instep.control.queries.schema_tree:SelectedColumns",
        paged=True,
        largest_page=200,
    ),
    QuerySpec(
        "match_pattern",
        role="viewer",
        route="GET /connections/{connection}/selection/matches",
        query=MatchPattern,
        result="instep.control.queries.schema_tree:PatternMatches",
        work="instep.control.queries.schema_tree:PatternLookup",
    ),
)
