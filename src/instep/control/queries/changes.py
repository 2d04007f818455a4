"""Answers about changes, from the store alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from instep.control.queries.context import QueryContext
from instep.model import Review
from instep.operations.queries.changes import GetChange, ListChanges
from instep.operations.spec import QueryWork
from instep.store.server.pages import Only


class ChangeList(QueryWork):
    """Changes by the time when they were first seen."""

    place_types = (datetime, str)

    def items(
        self, context: QueryContext, query: ListChanges, after: Sequence[Any] | None, limit: int
    ) -> Sequence[Review]:
        """Return changes, newest first."""
        only = Only(context.only(query.connection), query.status, query.kind)
        return context.store.pages.reviews(only, (after[0], after[1]) if after else None, limit)

    def place(self, item: Review) -> Sequence[Any]:
        """Return when the change was first seen, and its id."""
        return (item.first_seen, item.id)


class ChangeLookup(QueryWork):
    """One change by its whole id."""

    def find(self, context: QueryContext, query: GetChange) -> Review:
        """Return the change with the decision on it."""
        return context.owned("change", query.change, context.store.reviews.get)
