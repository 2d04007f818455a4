"""Comments on changes, their assignee, and saved filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import ImmediateRequest, ImmediateSpec
from instep.operations.values import ChangeView, LeadsTo, Length, Name, NameText, TextPattern

FilterName = Annotated[str, Length(1, 80), TextPattern(r"^[^/\\]+$"), LeadsTo("name")]


@dataclass(frozen=True)
class CommentChangeRequest(ImmediateRequest):
    """Comment on a change. A comment cannot be changed afterwards."""

    change: Name
    """The change's id, c-..."""
    text: Annotated[str, Length(1, 4000), LeadsTo("reason")]
    """The text of the comment."""


@dataclass(frozen=True)
class AssignChangeRequest(ImmediateRequest):
    """Assign a change to a person."""

    change: Name
    """The change's id, c-..."""
    assignee: Annotated[str, Length(0, 80), LeadsTo("name")] = ""
    """The person, such as the name of an API key; "" for nobody."""


@dataclass(frozen=True)
class SaveFilterRequest(ImmediateRequest):
    """Save a filter of changes under a name, for this API key. One of the same name is replaced."""

    name: FilterName
    """The filter's name."""
    search: NameText = ""
    """Text or regular expression that the list of changes looks for."""
    connection: Name | None = None
    """Only changes of this connection."""
    kind: Annotated[tuple[Name, ...], Length(0, 20)] = ()
    """Only changes of one of these kinds."""
    tag: NameText = ""
    """Only changes of connections with this tag."""
    assignee: NameText = ""
    """Only changes assigned to this person."""
    view: ChangeView | None = None
    """Only changes of this view."""


@dataclass(frozen=True)
class DeleteFilterRequest(ImmediateRequest):
    """Delete a saved filter of this API key."""

    name: FilterName
    """The filter's name."""


SPECS = (
    ImmediateSpec(
        "comment_change",
        role="operator",
        route="POST /changes/{change}/comments",
        request=CommentChangeRequest,
        result="instep.control.immediate.changes:CommentedChange",
        work="instep.control.immediate.changes:Commenting",
        audit="change.commented",
        target="change",
        status=201,
    ),
    ImmediateSpec(
        "assign_change",
        role="operator",
        route="POST /changes/{change}/assign",
        request=AssignChangeRequest,
        result="instep.control.immediate.decisions:AnsweredChange",
        work="instep.control.immediate.changes:Assigning",
        audit="change.assigned",
        target="change",
        match="change",
    ),
    ImmediateSpec(
        "save_filter",
        role="viewer",
        route="PUT /filters/{name}",
        request=SaveFilterRequest,
        result="instep.control.immediate.changes:FilterWritten",
        work="instep.control.immediate.changes:FilterSaving",
        audit="filter.save",
        target="name",
    ),
    ImmediateSpec(
        "delete_filter",
        role="viewer",
        route="DELETE /filters/{name}",
        request=DeleteFilterRequest,
        result="instep.control.immediate.changes:FilterWritten",
        work="instep.control.immediate.changes:FilterDeletion",
        audit="filter.delete",
        target="name",
    ),
)
