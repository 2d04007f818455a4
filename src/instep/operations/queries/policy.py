"""The policy of a connection, and the selection: what is decided, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import Length, Name, NameText


@dataclass(frozen=True)
class GetPolicy(Query):
    """Return the preset, rules and overrides of a connection's policy with their origin, and the preset's decision per
    kind of change."""

    connection: Name
    """The connection."""


@dataclass(frozen=True)
class ExplainDecision(Query):
    """Explain which rule would decide on a change, and why no earlier rule does."""

    connection: Name
    """The connection."""
    path: Annotated[Name, Length(1, 1000)]
    """`schema.table` or `schema.table.column`."""
    kind: Annotated[Name, Length(1, 100)]
    """A kind of change, such as column.removed."""
    before: Annotated[NameText, Length(0, 200)] = ""
    """The type that the column has."""
    after: Annotated[NameText, Length(0, 200)] = ""
    """The type that the column gets; for a rename, the new name."""


@dataclass(frozen=True)
class GetSelection(Query):
    """Return the selection: schemas and tables with the reason, and columns that a person has switched. Empty before
    the first detection."""

    connection: Name
    """The connection."""
    columns: bool = False
    """True to list every column, not only those that were switched."""


SPECS = (
    QuerySpec(
        "get_policy_in_force",
        role="viewer",
        route="GET /connections/{connection}/policy",
        query=GetPolicy,
        result="builtins:dict",
        work="instep.control.queries.policy:PolicyInForce",
    ),
    QuerySpec(
        "explain_decision",
        role="viewer",
        route="GET /connections/{connection}/policy/explain",
        query=ExplainDecision,
        result="builtins:dict",
        work="instep.control.queries.policy:DecisionExplained",
    ),
    QuerySpec(
        "get_selection",
        role="viewer",
        route="GET /connections/{connection}/selection",
        query=GetSelection,
        result="instep.control.queries.policy:SelectionListing",
        work="instep.control.queries.policy:SelectionDetails",
    ),
)
