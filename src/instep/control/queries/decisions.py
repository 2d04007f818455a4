"""Answers about changes, policy, selection and rollouts, from the project and the store alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from instep.control.policy.policies import PolicySimulation, explain, explained, run_cases, shown, tested
from instep.control.policy.simulation import simulate
from instep.control.queries.context import QueryContext
from instep.control.rollouts import queued
from instep.control.rollouts.create import patch_of
from instep.control.selection.listing import Listed, listed, tree
from instep.control.selection.selections import SwitchedConnection, place_of
from instep.control.times import aware
from instep.errors import InstepError, NotFound
from instep.model import Fit, Member, Review, Rollout
from instep.operations.queries.decisions import (
    ExplainDecision,
    GetChange,
    GetPolicy,
    GetRollout,
    GetSelection,
    ListRolloutConnections,
    ListRollouts,
    RunPolicyCases,
    SimulatePolicy,
)
from instep.operations.spec import QueryWork
from instep.operations.values import MemberStatus
from instep.project.documents import check_storable, section_of
from instep.project.files.policy_files import sample_cases
from instep.project.sections.policies import PolicySection


class ChangeLookup(QueryWork):
    """One change by its whole id."""

    def find(self, context: QueryContext, query: GetChange) -> Review:
        """Return the change with the decision on it."""
        return context.owned("change", query.change, context.store.reviews.get)


@dataclass(frozen=True)
class SelectionListing:
    """The selection of a connection: as a tree, and as a list of the same objects."""

    schema_change_handling: str
    schemas: Mapping[str, Any]
    """The tree, nested as a schema config has it."""
    objects: tuple[Listed, ...]
    """Schemas, tables and columns in order of their names."""

    @classmethod
    def of(cls, place: SwitchedConnection, *, columns: bool) -> SelectionListing:
        """Return the listing of a connection. `columns`: with every column."""
        objects = listed(place, columns=columns)
        return cls(**tree(place, objects), objects=tuple(objects))


class PolicyInForce(QueryWork):
    """The policy of one connection."""

    def find(self, context: QueryContext, query: GetPolicy) -> dict[str, Any]:
        """Return the policy as a document."""
        return shown(context.project, context.connection(query.connection)).document()


class DecisionExplained(QueryWork):
    """The decision on one change."""

    def find(self, context: QueryContext, query: ExplainDecision) -> dict[str, Any]:
        """Return the decision as a document. Raises InstepError for a kind or a path that there is not."""
        name = context.connection(query.connection)
        explanation = explain(context.project, context.store, name, query.path, query.kind, query.before, query.after)
        return explained(explanation)


class SelectionDetails(QueryWork):
    """The selection of one connection."""

    def find(self, context: QueryContext, query: GetSelection) -> SelectionListing:
        """Return what is on and why."""
        place = place_of(context.project, context.store, context.connection(query.connection))
        return SelectionListing.of(place, columns=query.columns)


@dataclass(frozen=True)
class TestedPolicy:
    """Decisions on sample changes."""

    results: tuple[Mapping[str, Any], ...]
    """Parallel to the cases; `problem` of one says why it can be no such change."""


class PolicyTested(QueryWork):
    """Sample changes under the policy of one connection."""

    def find(self, context: QueryContext, query: RunPolicyCases) -> TestedPolicy:
        """Decide the cases and compare. Raises ProjectError for a case that is none."""
        name = context.connection(query.connection)
        return TestedPolicy(
            tuple(tested(run_case) for run_case in run_cases(context.project, name, sample_cases(query.cases)))
        )


class PolicySimulated(QueryWork):
    """The recorded changes of one connection under another policy."""

    def find(self, context: QueryContext, query: SimulatePolicy) -> PolicySimulation:
        """Decide the changes again. Raises InvalidObject for a document that is no policy."""
        name = context.connection(query.connection)
        check_storable("policy", query.name, query.policy)
        section = section_of("policy", query.name, query.policy)
        assert isinstance(section, PolicySection)
        since = aware(query.since) if query.since is not None else None
        return PolicySimulation.of(simulate(context.project, context.store, name, query.name, section, since))


@dataclass(frozen=True)
class WaveProgress:
    """Progress of one wave of a rollout."""

    wave: int
    """The wave's number, from 1 on."""
    counts: Mapping[MemberStatus, int]
    """Number of its connections per status."""


@dataclass(frozen=True)
class RolloutDetails(Rollout):
    """A rollout with its progress."""

    text: str = ""
    """A sentence on what is rolled out."""
    counts: Mapping[MemberStatus, int] = field(default_factory=dict)
    """Number of connections per status."""
    waves: tuple[WaveProgress, ...] = ()
    """Progress of each wave."""
    job: str | None = None
    """The job that carries it on; null while none does."""


@dataclass(frozen=True)
class RolloutMember:
    """A connection of a rollout."""

    connection: str
    wave: int
    """Number of its wave; 0 if it needs none."""
    status: MemberStatus
    fit: Fit
    """Compatibility with the rollout."""
    why: str
    """Reason of that compatibility."""
    attempt: int
    run: str
    error: str
    findings: tuple[str, ...]
    """Findings of the health gates after its run."""
    accepted: str
    """Reason for which the findings were accepted."""
    who: str
    started: datetime | None
    ended: datetime | None

    @classmethod
    def of(cls, member: Member) -> RolloutMember:
        """Return the record of a stored member, without what takes the patch back."""
        return cls(**{name: value for name, value in vars(member).items() if name not in ("rollout", "before")})


def details_of(context: QueryContext, rollout: Rollout) -> RolloutDetails:
    """Return a rollout with its counts, and the job that carries it on."""
    every, waves = Counter[MemberStatus](), dict[int, dict[MemberStatus, int]]()
    for (wave, status), number in context.store.rollouts.counts(rollout.id).items():
        every[status] += number
        waves.setdefault(wave, {})[status] = number
    progress = tuple(WaveProgress(wave, waves[wave]) for wave in sorted(waves) if wave)
    job = queued.under_way(context.store, rollout.id)
    text = patch_of(rollout.what, context.project, context.store).text
    return RolloutDetails(**vars(rollout), text=text, counts=dict(every), waves=progress, job=job.id if job else None)


def rollout_of(context: QueryContext, id: str) -> Rollout:
    """Return the rollout with this whole id; NotFound if there is none, or it is also of hidden connections."""
    try:
        rollout = context.store.rollouts.get(id)
    except InstepError:
        raise NotFound.of("rollout", id) from None
    if rollout.id != id or not (context.scope is None or context.store.rollouts.is_within(id, context.scope)):
        raise NotFound.of("rollout", id)
    return rollout


class RolloutList(QueryWork):
    """Rollouts by their ids, which begin with their time."""

    place_types = (str,)

    def items(
        self, context: QueryContext, query: ListRollouts, after: Sequence[Any] | None, limit: int
    ) -> Sequence[Rollout]:
        """Return rollouts, newest first."""
        return context.store.rollouts.find(query.status, limit, after[0] if after else "", context.scope)

    def place(self, item: Rollout) -> Sequence[Any]:
        """Return the rollout's id."""
        return (item.id,)


class RolloutLookup(QueryWork):
    """One rollout by its whole id."""

    def find(self, context: QueryContext, query: GetRollout) -> RolloutDetails:
        """Return the rollout with how far it is."""
        return details_of(context, rollout_of(context, query.rollout))


class RolloutMembers(QueryWork):
    """The connections of one rollout."""

    place_types = (int, str)

    def items(
        self, context: QueryContext, query: ListRolloutConnections, after: Sequence[Any] | None, limit: int
    ) -> Sequence[RolloutMember]:
        """Return connections by wave and name."""
        behind = (after[0], after[1]) if after else None
        id = rollout_of(context, query.rollout).id
        members = context.store.rollouts.members(id, statuses=query.status, after=behind, limit=limit)
        return [RolloutMember.of(one) for one in members]

    def place(self, item: RolloutMember) -> Sequence[Any]:
        """Return the connection's wave and name."""
        return (item.wave, item.connection)
