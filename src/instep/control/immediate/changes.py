"""Comments on changes, their assignees, and saved filters, in the store alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instep.control.immediate.context import WriteContext
from instep.control.immediate.decisions import AnsweredChange
from instep.control.queries.changes import owner_of
from instep.errors import InstepError, NotFound
from instep.operations.immediate.changes import (
    AssignChangeRequest,
    CommentChangeRequest,
    DeleteFilterRequest,
    SaveFilterRequest,
)
from instep.operations.spec import ImmediateWork
from instep.schema.selection.selection import Pattern
from instep.store.catalogs.comments import Comment
from instep.store.server.saved_filters import SavedFilter


@dataclass(frozen=True)
class CommentedChange:
    """A change that was commented on."""

    comment: Comment
    """The comment."""


class Commenting(ImmediateWork):
    """Add a comment."""

    def execute(self, context: WriteContext, request: CommentChangeRequest, prepared: None) -> CommentedChange:
        """Add it; NotFound for a change that is not there, or that is hidden, InstepError for an empty text."""
        change = context.owned("change", request.change, context.store.reviews.get)
        if not (text := request.text.strip()):
            raise InstepError("the comment is empty", hint="write a text")
        return CommentedChange(context.store.comments.add(change, context.who, text))

    def detail(self, request: CommentChangeRequest, result: CommentedChange) -> Mapping[str, Any]:
        """Return the comment's number; its text stands with the change."""
        return {"connection": result.comment.connection, "comment": result.comment.number}


class Assigning(ImmediateWork):
    """Assign a change to a person."""

    def execute(self, context: WriteContext, request: AssignChangeRequest, prepared: None) -> AnsweredChange:
        """Assign it; NotFound for a change that is not there, or that is hidden."""
        change = context.owned("change", request.change, context.store.reviews.get)
        return AnsweredChange(context.store.reviews.assign(change.id, request.assignee.strip()))

    def detail(self, request: AssignChangeRequest, result: AnsweredChange) -> Mapping[str, Any]:
        """Return the connection, and who it is."""
        return {"connection": result.change.connection, "assignee": result.change.assignee}


@dataclass(frozen=True)
class FilterWritten:
    """A saved filter that was written or deleted."""

    filter: SavedFilter
    """The filter."""


class FilterSaving(ImmediateWork):
    """Save a filter."""

    def execute(self, context: WriteContext, request: SaveFilterRequest, prepared: None) -> FilterWritten:
        """Save it; SchemaError for a regular expression that is wrong or may be slow."""
        if request.search.startswith("re:"):
            Pattern(request.search)
        filters = {name: value for name, value in request.options().items() if name != "name"}
        return FilterWritten(context.store.filters.save(owner_of(context), request.name, filters))

    def detail(self, request: SaveFilterRequest, result: FilterWritten) -> Mapping[str, Any]:
        """Return the filter."""
        return {"filter": dict(result.filter.filter)}


class FilterDeletion(ImmediateWork):
    """Delete a saved filter."""

    def execute(self, context: WriteContext, request: DeleteFilterRequest, prepared: None) -> FilterWritten:
        """Delete it; NotFound if there is none of this name."""
        if not context.store.filters.delete(owner_of(context), request.name):
            raise NotFound.of("filter", request.name)
        return FilterWritten(SavedFilter(request.name))

    def detail(self, request: DeleteFilterRequest, result: FilterWritten) -> Mapping[str, Any]:
        """Return nothing more."""
        return {}
