"""Queries about many changes, and about what people have written and saved beside them."""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.queries.decisions import ListChanges
from instep.operations.spec import Query, QuerySpec
from instep.operations.values import Name


@dataclass(frozen=True)
class CountChanges(ListChanges):
    """Count the schema changes that match, per view and per kind."""


@dataclass(frozen=True)
class ListComments(Query):
    """List the comments on one schema change, oldest first."""

    change: Name
    """The change's id, c-..."""


@dataclass(frozen=True)
class ListFilters(Query):
    """List the filters of changes that this API key has saved, by name."""


SPECS = (
    QuerySpec(
        "count_changes",
        role="viewer",
        route="GET /change-counts",
        query=CountChanges,
        result="instep.store.server.change_pages:ChangeCounts",
        work="instep.control.queries.changes:ChangeCounting",
    ),
    QuerySpec(
        "list_comments",
        role="viewer",
        route="GET /changes/{change}/comments",
        query=ListComments,
        result="instep.store.catalogs.comments:Comment",
        work="instep.control.queries.changes:CommentList",
        paged=True,
    ),
    QuerySpec(
        "list_filters",
        role="viewer",
        route="GET /filters",
        query=ListFilters,
        result="instep.store.server.saved_filters:SavedFilter",
        work="instep.control.queries.changes:FilterList",
        paged=True,
    ),
)
