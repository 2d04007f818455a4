"""Create a rollout, carry it on, stop it, take it back, and leave connections out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from instep.operations.spec import ImmediatePart, ImmediateRequest, ImmediateSpec
from instep.operations.values import LeadsTo, Length, Name, NameList, NumberRange, Reason, Verb

SIZES = ("1", "10%", "rest")
"""The waves of a rollout unless it says otherwise."""
Path = Annotated[str, Length(1, 1000), LeadsTo("name")]
Setting = Annotated[str, Length(1, 200), LeadsTo("setting")]
ManyNames = Annotated[tuple[Name, ...], Length(0, 1000)]


@dataclass(frozen=True)
class RolloutGroup(ImmediatePart):
    """The connections of a rollout. Different filters are combined with AND, the values of one filter with OR."""

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
    """Select, deselect or hash one object in each connection."""

    verb: Verb
    """The action: on, off, hash or unhash."""
    object: Path
    """A schema, table or column: SCHEMA[.TABLE[.COLUMN]]."""


@dataclass(frozen=True)
class RolloutAnswer(ImmediatePart):
    """The same answer to a change in each connection."""

    change: Path
    """The change's id (c-...), or KIND:OBJECT such as column.added:public.order.note."""
    verdict: Literal["approved", "rejected"]
    """The answer."""


@dataclass(frozen=True)
class CreateRolloutRequest(ImmediateRequest):
    """Create a rollout of exactly one of `selection`, `change` and `preset`. No connection changes until the rollout is
    advanced. With `dry_run` the response has only the compatibility table, based on what is known of the sources."""

    group: RolloutGroup
    """The connections."""
    selection: Annotated[tuple[RolloutSwitch, ...], Length(0, 100)] = ()
    """Objects to select, deselect or hash."""
    change: RolloutAnswer | None = None
    """A change to answer."""
    preset: Setting | None = None
    """The preset of a policy."""
    sizes: Annotated[tuple[Setting, ...], Length(0, 100)] = SIZES
    """Sizes of the waves: numbers, or percentages such as 10%."""
    gates: Annotated[tuple[Setting, ...], Length(0, 10)] = ()
    """Limits that halt the rollout: failed=10%, quarantined=0.5%, nulls=3, rows=30%, NAME=off."""
    canary: NameList = ()
    """Connections of the first wave."""


@dataclass(frozen=True)
class AdvanceRolloutRequest(ImmediateRequest):
    """Start the next wave of a rollout, or continue an unfinished one. If the rollout is already being advanced, the
    response has that job."""

    rollout: Name
    """The rollout's id, w-..."""
    every: bool = False
    """True to run wave after wave, as long as the gates pass."""


@dataclass(frozen=True)
class ResumeRolloutRequest(ImmediateRequest):
    """Resume a rollout after a stop or a halt; only unfinished connections are processed."""

    rollout: Name
    """The rollout's id, w-..."""
    every: bool = False
    """True to run wave after wave, as long as the gates pass."""
    accept: Reason = ""
    """Reason for accepting what the gates found."""


@dataclass(frozen=True)
class RollBackRolloutRequest(ImmediateRequest):
    """Undo a wave, or some of its connections, and stop the rollout."""

    rollout: Name
    """The rollout's id, w-..."""
    wave: Annotated[int, NumberRange(0, 10_000)] = 0
    """Number of the wave; 0: the last that has started."""
    connections: ManyNames = ()
    """Only these connections."""


@dataclass(frozen=True)
class StopRolloutRequest(ImmediateRequest):
    """Stop a rollout: no further connection is started; current runs finish."""

    rollout: Name
    """The rollout's id, w-..."""
    reason: Reason = ""
    """Reason shown in `status`."""


@dataclass(frozen=True)
class SkipConnectionsRequest(ImmediateRequest):
    """Leave connections out of a rollout, all or none. Changes already made to them stay."""

    rollout: Name
    """The rollout's id, w-..."""
    connections: Annotated[tuple[Name, ...], Length(1, 1000)]
    """The connections."""
    reason: Annotated[str, Length(1, 1000), LeadsTo("reason")]
    """Reason to record."""


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
