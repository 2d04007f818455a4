"""Schema changes that were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.kinds import ReviewStatus
from instep.operations.spec import Query, QuerySpec
from instep.operations.values import Length, Name


@dataclass(frozen=True)
class ListChanges(Query):
    """Changes of schemas with the decision on each, those that were found last first."""

    connection: Name | None = None
    """Only those of this connection."""
    status: Annotated[tuple[ReviewStatus, ...], Length(0, 5)] = ()
    """Only those with one of these statuses."""
    kind: Annotated[tuple[Name, ...], Length(0, 20)] = ()
    """Only those of one of these kinds, such as column.added."""


@dataclass(frozen=True)
class GetChange(Query):
    """One change of a schema, with the decision on it."""

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
