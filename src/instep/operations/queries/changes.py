"""Schema changes that were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.kinds import ReviewStatus
from instep.operations.spec import Query, QuerySpec
from instep.operations.values import Length, Name


@dataclass(frozen=True)
class ListChanges(Query):
    """List schema changes with their decisions, latest first."""

    connection: Name | None = None
    """Only items of this connection."""
    status: Annotated[tuple[ReviewStatus, ...], Length(0, 5)] = ()
    """Only items with one of these statuses."""
    kind: Annotated[tuple[Name, ...], Length(0, 20)] = ()
    """Only changes of one of these kinds, such as column.added."""


@dataclass(frozen=True)
class GetChange(Query):
    """Return one schema change with its decision."""

    change: Name
    """The change's id, c-..."""


SPECS = (
    QuerySpec(
        "list_changes",
        role="viewer",
        route="GET /changes",
        query=ListChanges,
        result="instep.model:Review",
        work="instep.control.queries.changes:ChangeList",
        paged=True,
    ),
    QuerySpec(
        "get_change",
        role="viewer",
        route="GET /changes/{change}",
        query=GetChange,
        result="instep.model:Review",
        work="instep.control.queries.changes:ChangeLookup",
    ),
)
