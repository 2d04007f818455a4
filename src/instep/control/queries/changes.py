"""Answers about many changes: lists, counts, comments and saved filters, from the store alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from instep.control.queries.context import QueryContext
from instep.model import Review
from instep.operations.queries.changes import CountChanges, ListComments, ListFilters
from instep.operations.queries.decisions import ListChanges
from instep.operations.spec import QueryWork
from instep.schema.changes.version import BREAKING
from instep.store.catalogs.comments import Comment
from instep.store.server.change_pages import ChangeCounts, ChangeSearch
from instep.store.server.saved_filters import SavedFilter


@dataclass(frozen=True)
class ListedChange(Review):
    """A change with what a list shows beside it."""

    breaking: bool = False
    """True if it breaks readers of the destination once it is applied: it leads to a major version."""
    elsewhere: int = 0
    """Number of other connections in which the same change stands."""
    comments: int = 0
    """Number of comments on it."""
    rows: int | None = None
    """Rows of its table by the source's statistics; null where none are known."""


def connections_of(context: QueryContext, connection: str | None, tag: str) -> frozenset[str] | None:
    """Return the connections whose changes are meant: the named one, those with a tag, or all that the asker may see
    (None: no limit)."""
    only = context.only(connection)
    if not tag:
        return only
    tagged = {name for name, one in context.project.model.connections.items() if tag in one.tags}
    return frozenset(name for name in tagged if (only is None or name in only) and context.sees(name))


def search_of(context: QueryContext, query: ListChanges) -> ChangeSearch:
    """Return what a query looks for."""
    return ChangeSearch(
        connections_of(context, query.connection, query.tag),
        query.status,
        query.kind,
        query.id or "",
        query.view,
        query.search,
        query.assignee,
    )


class ChangeList(QueryWork):
    """Changes by the time when they were first seen."""

    place_types = (datetime, str)

    def items(
        self, context: QueryContext, query: ListChanges, after: Sequence[Any] | None, limit: int
    ) -> Sequence[Review]:
        """Return changes, newest first."""
        place = (after[0], after[1]) if after else None
        return context.store.changes.page(search_of(context, query), place, limit)

    def shown(self, context: QueryContext, items: Sequence[Review]) -> Sequence[ListedChange]:
        """Return the changes with what stands beside them."""
        store = context.store
        elsewhere, rows = store.changes.count_elsewhere(items, context.scope), store.changes.rows(items)
        comments = store.comments.counts([item.id for item in items])
        return [
            ListedChange(
                **vars(one),
                breaking=one.kind in BREAKING,
                elsewhere=elsewhere[one.id],
                comments=comments.get(one.id, 0),
                rows=rows.get(one.id),
            )
            for one in items
        ]

    def place(self, item: Review) -> Sequence[Any]:
        """Return when the change was first seen, and its id."""
        return (item.first_seen, item.id)


class ChangeCounting(QueryWork):
    """Numbers of changes."""

    def find(self, context: QueryContext, query: CountChanges) -> ChangeCounts:
        """Return the numbers per view and kind."""
        return context.store.changes.counts(search_of(context, query))


class CommentList(QueryWork):
    """The comments on one change."""

    place_types = (int,)

    def items(
        self, context: QueryContext, query: ListComments, after: Sequence[Any] | None, limit: int
    ) -> Sequence[Comment]:
        """Return comments, oldest first."""
        change = context.owned("change", query.change, context.store.reviews.get)
        return context.store.comments.find(change.id, after[0] if after else 0, limit)

    def place(self, item: Comment) -> Sequence[Any]:
        """Return the comment's number."""
        return (item.number,)


class FilterList(QueryWork):
    """The filters that one key has saved."""

    place_types = (str,)

    def items(
        self, context: QueryContext, query: ListFilters, after: Sequence[Any] | None, limit: int
    ) -> Sequence[SavedFilter]:
        """Return filters by name."""
        filters = context.store.filters.find(owner_of(context))
        return [one for one in filters if not after or one.name > after[0]][:limit]

    def place(self, item: SavedFilter) -> Sequence[Any]:
        """Return the filter's name."""
        return (item.name,)


def owner_of(context: QueryContext) -> str:
    """Return whose filters they are: the id of the API key, "" at the project."""
    return context.key.id if context.key else ""
