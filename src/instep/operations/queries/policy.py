"""The policy of a connection, and the selection: what is decided, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import LeadsTo, Length, Name, NameText


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


@dataclass(frozen=True)
class RunPolicyCases(Query):
    """Decide sample changes, and compare with what is expected of each. Nothing is written."""

    connection: Name
    """The connection."""
    cases: Annotated[tuple[dict[str, Any], ...], Length(1, 1000), LeadsTo("name")]
    """The changes, as files of `instep policy test` have them."""


@dataclass(frozen=True)
class SimulatePolicy(Query):
    """What another policy would have decided on every recorded change, beside what was decided then. Nothing is
    written."""

    connection: Name
    """The connection."""
    name: Name
    """What the policy is called."""
    policy: Annotated[dict[str, Any], LeadsTo("spec")]
    """What stands under one name of `policies:` in instep.yml."""
    since: datetime | None = None
    """Only changes first seen at this time or later, in UTC where it does not say otherwise."""


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
    QuerySpec(
        "run_policy_cases",
        role="viewer",
        route="POST /connections/{connection}/policy/test",
        query=RunPolicyCases,
        result="instep.control.queries.policy:TestedPolicy",
        work="instep.control.queries.policy:PolicyTested",
    ),
    QuerySpec(
        "simulate_policy",
        role="viewer",
        route="POST /connections/{connection}/policy/simulation",
        query=SimulatePolicy,
        result="instep.control.policy.policies:PolicySimulation",
        work="instep.control.queries.policy:PolicySimulated",
    ),
)
