"""Rollouts, and how far each of their connections is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.kinds import MemberStatus, RolloutStatus
from instep.operations.spec import Query, QuerySpec
from instep.operations.values import Length, Name


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
        "list_rollouts",
        role="viewer",
        route="GET /rollouts",
        query=ListRollouts,
        result="instep.model:Rollout",
        work="instep.control.queries.rollouts:RolloutList",
        paged=True,
    ),
    QuerySpec(
        "get_rollout",
        role="viewer",
        route="GET /rollouts/{rollout}",
        query=GetRollout,
        result="instep.control.queries.rollouts:RolloutDetails",
        work="instep.control.queries.rollouts:RolloutLookup",
    ),
    QuerySpec(
        "list_rollout_connections",
        role="viewer",
        route="GET /rollouts/{rollout}/connections",
        query=ListRolloutConnections,
        result="instep.control.queries.rollouts:RolloutMember",
        work="instep.control.queries.rollouts:RolloutMembers",
        paged=True,
    ),
)
