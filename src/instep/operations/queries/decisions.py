"""Queries for schema changes, policy, selection and rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from instep.operations.spec import Query, QuerySpec
from instep.operations.values import (
    ChangeView,
    LeadsTo,
    Length,
    MemberStatus,
    Name,
    NameText,
    ReviewStatus,
    RolloutStatus,
)


@dataclass(frozen=True)
class ListChanges(Query):
    """List schema changes with their decisions, latest first."""

    connection: Name | None = None
    """Only items of this connection."""
    status: Annotated[tuple[ReviewStatus, ...], Length(0, 5)] = ()
    """Only items with one of these statuses."""
    kind: Annotated[tuple[Name, ...], Length(0, 20)] = ()
    """Only changes of one of these kinds, such as column.added."""
    id: Name | None = None
    """Only changes whose ids begin with this."""
    view: ChangeView | None = None
    """Only changes of this view: what waits for a review, blocks a connection, is snoozed, waits to be applied, ..."""
    search: NameText = ""
    """Only changes whose connection, schema, table or column has this text in its name; after `re:` a regular
    expression that fits all of `schema.table` or `schema.table.column`."""
    tag: NameText = ""
    """Only changes of connections with this tag."""
    assignee: NameText = ""
    """Only changes assigned to this person."""


@dataclass(frozen=True)
class GetChange(Query):
    """Return one schema change with its decision."""

    change: Name
    """The change's id, c-..."""


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
    """Compare what another policy would have decided on every recorded change with what was decided then. Nothing is
    written."""

    connection: Name
    """The connection."""
    name: Name
    """The policy's name."""
    policy: Annotated[dict[str, Any], LeadsTo("spec")]
    """The policy, as a section of `policies:` in instep.yml."""
    since: datetime | None = None
    """Only changes first seen at this time or later, in UTC where it does not say otherwise."""


@dataclass(frozen=True)
class ListRollouts(Query):
    """List rollouts, newest first."""

    status: Annotated[tuple[RolloutStatus, ...], Length(0, 6)] = ()
    """Only items with one of these statuses."""


@dataclass(frozen=True)
class GetRollout(Query):
    """Return the progress of a rollout, wave by wave."""

    rollout: Name
    """The rollout's id, w-..."""


@dataclass(frozen=True)
class ListRolloutConnections(Query):
    """List the connections of a rollout by wave and name, with the reason for those that failed or do not fit."""

    rollout: Name
    """The rollout's id, w-..."""
    status: Annotated[tuple[MemberStatus, ...], Length(0, 8)] = ()
    """Only items with one of these statuses."""


SPECS = (
    QuerySpec(
        "list_changes",
        role="viewer",
        route="GET /changes",
        query=ListChanges,
        result="instep.control.queries.changes:ListedChange",
        work="instep.control.queries.changes:ChangeList",
        paged=True,
    ),
    QuerySpec(
        "get_change",
        role="viewer",
        route="GET /changes/{change}",
        query=GetChange,
        result="instep.model:Review",
        work="instep.control.queries.decisions:ChangeLookup",
    ),
    QuerySpec(
        "get_policy_in_force",
        role="viewer",
        route="GET /connections/{connection}/policy",
        query=GetPolicy,
        result="builtins:dict",
        work="instep.control.queries.decisions:PolicyInForce",
    ),
    QuerySpec(
        "explain_decision",
        role="viewer",
        route="GET /connections/{connection}/policy/explain",
        query=ExplainDecision,
        result="builtins:dict",
        work="instep.control.queries.decisions:DecisionExplained",
    ),
    QuerySpec(
        "get_selection",
        role="viewer",
        route="GET /connections/{connection}/selection",
        query=GetSelection,
        result="instep.control.queries.decisions:SelectionListing",
        work="instep.control.queries.decisions:SelectionDetails",
    ),
    QuerySpec(
        "run_policy_cases",
        role="viewer",
        route="POST /connections/{connection}/policy/test",
        query=RunPolicyCases,
        result="instep.control.queries.decisions:TestedPolicy",
        work="instep.control.queries.decisions:PolicyTested",
    ),
    QuerySpec(
        "simulate_policy",
        role="viewer",
        route="POST /connections/{connection}/policy/simulation",
        query=SimulatePolicy,
        result="instep.control.policy.policies:PolicySimulation",
        work="instep.control.queries.decisions:PolicySimulated",
    ),
    QuerySpec(
        "list_rollouts",
        role="viewer",
        route="GET /rollouts",
        query=ListRollouts,
        result="instep.model:Rollout",
        work="instep.control.queries.decisions:RolloutList",
        paged=True,
    ),
    QuerySpec(
        "get_rollout",
        role="viewer",
        route="GET /rollouts/{rollout}",
        query=GetRollout,
        result="instep.control.queries.decisions:RolloutDetails",
        work="instep.control.queries.decisions:RolloutLookup",
    ),
    QuerySpec(
        "list_rollout_connections",
        role="viewer",
        route="GET /rollouts/{rollout}/connections",
        query=ListRolloutConnections,
        result="instep.control.queries.decisions:RolloutMember",
        work="instep.control.queries.decisions:RolloutMembers",
        paged=True,
    ),
)
