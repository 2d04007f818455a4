"""Create a rollout, carry it on, stop it, take it back, and leave connections out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from instep.operations.kinds import Verb
from instep.operations.spec import ImmediatePart, ImmediateRequest, ImmediateSpec
from instep.operations.values import LeadsTo, Length, Name, NameList, NumberRange, Reason

SIZES = ("1", "10%", "rest")
"""The waves of a rollout unless it says otherwise."""
Path = Annotated[str, Length(1, 1000), LeadsTo("name")]
Setting = Annotated[str, Length(1, 200), LeadsTo("setting")]
ManyNames = Annotated[tuple[Name, ...], Length(0, 1000)]


@dataclass(frozen=True)
class RolloutGroup(ImmediatePart):
    """The connections of a rollout. Of one sort any fits, of different sorts all must."""

    connections: ManyNames = ()
    """These connections."""
    destinations: NameList = ()
    """Connections into one of these destinations."""
    tags: NameList = ()
    """Connections with one of these tags."""
    matching: NameList = ()
    """Connections that match one of these globs or re:REGEX."""


@dataclass(frozen=True)
class RolloutSwitch(ImmediatePart):
    """Switch one object in the selection of each connection."""

    verb: Verb
    """What is done with it."""
    object: Path
    """A schema, table or column: SCHEMA[.TABLE[.COLUMN]]."""


@dataclass(frozen=True)
class RolloutAnswer(ImmediatePart):
    """Give a change of each connection one answer."""

    change: Path
    """The change's id (c-...), or KIND:OBJECT such as column.added:public.order.note."""
    verdict: Literal["approved", "rejected"]
    """The answer."""


@dataclass(frozen=True)
class CreateRolloutRequest(ImmediateRequest):
    """Create a rollout of one of `selection`, `change` and `preset`. It touches no connection. With `dry_run` only the
    compatibility table: how it fits each, as of what is known of their sources."""

    group: RolloutGroup
    """The connections."""
    selection: Annotated[tuple[RolloutSwitch, ...], Length(0, 100)] = ()
    """Objects to switch."""
    change: RolloutAnswer | None = None
    """A change to answer."""
    preset: Setting | None = None
    """The preset of a policy."""
    sizes: Annotated[tuple[Setting, ...], Length(0, 100)] = SIZES
    """The sizes of the waves: numbers, or shares such as 10%."""
    gates: Annotated[tuple[Setting, ...], Length(0, 10)] = ()
    """What halts it: failed=10%, quarantined=0.5%, nulls=3, rows=30%, NAME=off."""
    canary: NameList = ()
    """Connections that come first."""


@dataclass(frozen=True)
class AdvanceRolloutRequest(ImmediateRequest):
    """Begin the next wave of a rollout, or go on with what is left of one that has begun. Answered with what is under
    way, if something is."""

    rollout: Name
    """The rollout's id, w-..."""
    every: bool = False
    """Wave after wave, as long as the gates let it."""


@dataclass(frozen=True)
class ResumeRolloutRequest(ImmediateRequest):
    """Resume a rollout after a stop or a halt; only what is not done is touched."""

    rollout: Name
    """The rollout's id, w-..."""
    every: bool = False
    """Wave after wave, as long as the gates let it."""
    accept: Reason = ""
    """Why what the gates have found may pass."""


@dataclass(frozen=True)
class RollBackRolloutRequest(ImmediateRequest):
    """Take back what reached a wave, or some connections; then the rollout is stopped."""

    rollout: Name
    """The rollout's id, w-..."""
    wave: Annotated[int, NumberRange(0, 10_000)] = 0
    """The wave; 0 is the last that has begun."""
    connections: ManyNames = ()
    """Only these connections."""


@dataclass(frozen=True)
class StopRolloutRequest(ImmediateRequest):
    """Stop a rollout: no connection is begun any more; runs that are under way end."""

    rollout: Name
    """The rollout's id, w-..."""
    reason: Reason = ""
    """The reason that is shown to people."""


@dataclass(frozen=True)
class SkipConnectionsRequest(ImmediateRequest):
    """Leave connections out of a rollout, all or none. What one has received stays."""

    rollout: Name
    """The rollout's id, w-..."""
    connections: Annotated[tuple[Name, ...], Length(1, 1000)]
    """The connections."""
    reason: Annotated[str, Length(1, 1000), LeadsTo("reason")]
    """The reason that is kept with them."""


SPECS = (
    ImmediateSpec(
        "create_rollout",
        role="approver",
        route="POST /rollouts",
        request=CreateRolloutRequest,
        result="instep.control.immediate.rollouts:CreatedRollout",
        work="instep.control.immediate.rollouts:RolloutCreation",
        audit="rollout.create",
        target="a new rollout",
        status=201,
    ),
    ImmediateSpec(
        "advance_rollout",
        role="approver",
        route="POST /rollouts/{rollout}/advance",
        request=AdvanceRolloutRequest,
        result="instep.control.immediate.rollouts:RolloutStep",
        work="instep.control.immediate.rollouts:RolloutAdvance",
        audit="rollout.advance",
        target="rollout",
        match="rollout",
        status=202,
        fresh="fresh",
    ),
    ImmediateSpec(
        "resume_rollout",
        role="approver",
        route="POST /rollouts/{rollout}/resume",
        request=ResumeRolloutRequest,
        result="instep.control.immediate.rollouts:RolloutStep",
        work="instep.control.immediate.rollouts:RolloutResumption",
        audit="rollout.resume",
        target="rollout",
        match="rollout",
        status=202,
        fresh="fresh",
    ),
    ImmediateSpec(
        "roll_back_rollout",
        role="approver",
        route="POST /rollouts/{rollout}/rollback",
        request=RollBackRolloutRequest,
        result="instep.control.immediate.rollouts:RolloutStep",
        work="instep.control.immediate.rollouts:RolloutRollback",
        audit="rollout.rollback",
        target="rollout",
        match="rollout",
        status=202,
        fresh="fresh",
    ),
    ImmediateSpec(
        "stop_rollout",
        role="operator",
        route="POST /rollouts/{rollout}/stop",
        request=StopRolloutRequest,
        result="instep.control.immediate.rollouts:ChangedRollout",
        work="instep.control.immediate.rollouts:RolloutStop",
        audit="rollout.stop",
        target="rollout",
        match="rollout",
    ),
    ImmediateSpec(
        "skip_connections",
        role="operator",
        route="POST /rollouts/{rollout}/skip",
        request=SkipConnectionsRequest,
        result="instep.control.immediate.rollouts:ChangedRollout",
        work="instep.control.immediate.rollouts:RolloutSkip",
        audit="rollout.skip",
        target="rollout",
        match="rollout",
    ),
)
