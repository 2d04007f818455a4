"""The steps of a rollout, in the store alone: a worker carries it on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from instep.control.immediate.context import WriteContext
from instep.control.queries.decisions import RolloutDetails, RolloutMember, details_of, rollout_of
from instep.control.rollouts import flow, queued
from instep.control.rollouts.changes import change_patch
from instep.control.rollouts.course import Course, to_advance, to_resume, to_roll_back
from instep.control.rollouts.create import RolloutOrder, create, draft
from instep.control.rollouts.gates import gates
from instep.control.rollouts.patch import Patch
from instep.control.rollouts.policies import ServedPolicies, policy_patch
from instep.control.rollouts.selections import SelectionPatch
from instep.control.rollouts.waves import ConnectionGroup, chosen, sizes
from instep.errors import InstepError
from instep.model import Fit, Job
from instep.operations.immediate.rollouts import (
    AdvanceRolloutRequest,
    CreateRolloutRequest,
    ResumeRolloutRequest,
    RollBackRolloutRequest,
    SkipConnectionsRequest,
    StopRolloutRequest,
)
from instep.operations.spec import ImmediateRequest, ImmediateWork
from instep.store.work.rollouts import RolloutDraft


@dataclass(frozen=True)
class CreatedRollout:
    """A new rollout that has not started, with its compatibility table."""

    rollout: RolloutDetails
    """The rollout."""
    fits: Mapping[Fit, int]
    """Number of connections per compatibility result."""
    connections: tuple[RolloutMember, ...]
    """The lines of the compatibility table."""


@dataclass(frozen=True)
class ChangedRollout:
    """A rollout after it was changed."""

    rollout: RolloutDetails
    """The rollout as it is now."""


@dataclass(frozen=True)
class RolloutStep:
    """A rollout with the job that advances it."""

    rollout: RolloutDetails
    """The rollout as it is now."""
    job: str
    """The job that advances the rollout."""
    fresh: bool
    """True if this request created the job; false if it existed already."""


class RolloutCreation(ImmediateWork):
    """Create a rollout."""

    def prepare(self, context: WriteContext, request: CreateRolloutRequest) -> RolloutDraft:
        """Detect the changes of all connections. What moves afterwards does not matter: a wave detects each of its
        own again."""
        group_name = request.group
        group = ConnectionGroup(group_name.connections, group_name.destinations, group_name.tags, group_name.matching)
        for name in group.names:
            context.connection(name)
        names = chosen(context.project, group, context.scope)
        patch = _patch(context, request, names)
        order = RolloutOrder(patch, group, sizes(",".join(request.sizes)), gates(request.gates), request.canary)
        return draft(order, names, context.who)

    def execute(
        self, context: WriteContext, request: CreateRolloutRequest, prepared: RolloutDraft | None
    ) -> CreatedRollout:
        """Write it down; InstepError if it would change no connection."""
        drafted = prepared or self.prepare(context, request)
        made = details_of(context, create(context.store, drafted))
        fits = Counter(member.fit for member in drafted.members)
        return CreatedRollout(made, dict(fits), tuple(map(RolloutMember.of, drafted.members)))

    def detail(self, request: CreateRolloutRequest, result: CreatedRollout) -> Mapping[str, Any]:
        """Return the id, what is rolled out, and over which connections."""
        return {"rollout": result.rollout.id, "what": result.rollout.what, "group": result.rollout.group}


def _patch(context: WriteContext, request: CreateRolloutRequest, names: list[str]) -> Patch:
    if sum((bool(request.selection), request.change is not None, request.preset is not None)) != 1:
        raise InstepError("a rollout rolls out one thing", hint="send one of selection, change and preset")
    if request.change is not None:
        return change_patch(context.store, request.change.verdict, request.change.change, names, context.sees)
    if request.preset is not None:
        return policy_patch(context.project, request.preset, ServedPolicies(context.resources))
    turns = tuple((one.verb, one.object) for one in request.selection)
    return SelectionPatch(context.project, context.store, turns)


class RolloutWork(ImmediateWork):
    """Change one rollout."""

    def requested(self, request: ImmediateRequest) -> Mapping[str, Any]:
        """Return the request, without the rollout."""
        return {field.name: getattr(request, field.name) for field in fields(request) if field.name != "rollout"}

    def detail(self, request: ImmediateRequest, result: Any) -> Mapping[str, Any]:
        """Return the request."""
        return self.requested(request)


class RolloutStepWork(RolloutWork):
    """Have one rollout carried on by a worker."""

    def enqueue(self, context: WriteContext, request: Any) -> tuple[Job, bool]:
        """Return the job that carries it on, and whether it is new."""
        raise NotImplementedError

    def course(self, context: WriteContext, request: Any) -> Course:
        """Return the course for this process, where no worker runs; raises as `enqueue` does."""
        raise NotImplementedError

    def execute(self, context: WriteContext, request: Any, prepared: None) -> RolloutStep:
        """Queue its job; raises Conflict while another step of it runs."""
        id = rollout_of(context, request.rollout).id
        job, fresh = self.enqueue(context, request)
        return RolloutStep(details_of(context, context.store.rollouts.get(id)), job.id, fresh)

    def detail(self, request: ImmediateRequest, result: Any) -> Mapping[str, Any]:
        """Return the job, and what was requested."""
        return {"job": result.job, **self.requested(request)}


class RolloutAdvance(RolloutStepWork):
    """Begin the next wave."""

    def enqueue(self, context: WriteContext, request: AdvanceRolloutRequest) -> tuple[Job, bool]:
        """Return the job; one that goes forward already is the one."""
        return queued.advance(context.store, request.rollout, context.who, every=request.every)

    def course(self, context: WriteContext, request: AdvanceRolloutRequest) -> Course:
        """Return the waves to carry on."""
        return to_advance(context.store, request.rollout, every=request.every)


class RolloutResumption(RolloutStepWork):
    """Try what is not done again."""

    def enqueue(self, context: WriteContext, request: ResumeRolloutRequest) -> tuple[Job, bool]:
        """Return the job; Blocked while nobody has accepted what the gates have found."""
        job = queued.resume(context.store, request.rollout, context.who, every=request.every, accept=request.accept)
        return job, True

    def course(self, context: WriteContext, request: ResumeRolloutRequest) -> Course:
        """Return the waves to carry on; Blocked while nobody has accepted what the gates have found."""
        return to_resume(context.store, request.rollout, context.who, every=request.every, accept=request.accept)


class RolloutRollback(RolloutStepWork):
    """Take back what was applied."""

    def enqueue(self, context: WriteContext, request: RollBackRolloutRequest) -> tuple[Job, bool]:
        """Return the job; InstepError if there is nothing to take back."""
        who, some = context.who, request.connections
        return queued.roll_back(context.store, request.rollout, who, wave=request.wave, connections=some), True

    def course(self, context: WriteContext, request: RollBackRolloutRequest) -> Course:
        """Return what to roll back; raises InstepError if there is nothing."""
        return to_roll_back(context.store, request.rollout, wave=request.wave, connections=request.connections)


class RolloutStop(RolloutWork):
    """Stop one rollout."""

    def execute(self, context: WriteContext, request: StopRolloutRequest, prepared: None) -> ChangedRollout:
        """Stop it; Conflict for one that is over."""
        id = rollout_of(context, request.rollout).id
        return ChangedRollout(details_of(context, flow.stop(context.store, id, context.who, request.reason)))


class RolloutSkip(RolloutWork):
    """Leave connections out."""

    def execute(self, context: WriteContext, request: SkipConnectionsRequest, prepared: None) -> ChangedRollout:
        """Skip them; raises Conflict if one of them is done, or its run is under way."""
        id = rollout_of(context, request.rollout).id
        flow.skip(context.store, id, request.connections, request.reason, context.who)
        return ChangedRollout(details_of(context, context.store.rollouts.get(id)))
