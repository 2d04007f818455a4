"""The course of a rollout, settled when it is requested: a process that carries it out, or the one after it, needs to
know no more, and may begin again at any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from instep.control.rollouts.machine import UNDONE, before
from instep.errors import Blocked, InstepError
from instep.model import Member, Rollout
from instep.operations.values import RolloutStatus
from instep.store.store import Store

FREE: tuple[RolloutStatus, ...] = ("ready", "stopped", "halted", "partial", "done")
_AGAIN: tuple[RolloutStatus, ...] = ("ready", "stopped", "halted", "partial")


@dataclass(frozen=True)
class Course:
    """Forward: no wave after `upto` begins, and the sources of `look` are looked at first."""

    upto: int
    back: bool = False
    """True for a rollback of what reached wave `upto`, or of these `connections`."""
    look: tuple[str, ...] = ()
    connections: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "look": list(self.look), "connections": list(self.connections)}

    @property
    def text(self) -> str:
        """Return the text for people."""
        if self.back:
            return f"{', '.join(self.connections) or f'wave {self.upto}'} back"
        return f"up to wave {self.upto}"


def course_of(data: Mapping[str, Any]) -> Course:
    """Return the course that `Course.to_dict` wrote."""
    return Course(data["upto"], data["back"], tuple(data["look"]), tuple(data["connections"]))


def to_advance(store: Store, id: str, *, every: bool = False) -> Course:
    """Return the next wave, or what is left of those that have begun; `every`: all. Conflict while another process
    carries it on, and for one that was stopped or has halted."""
    return _forward(store, store.rollouts.check_allowed(id, ("ready",)), every)


def to_resume(store: Store, id: str, who: str, *, every: bool = False, accept: str = "") -> Course:
    """Reset what failed or did not fit in the started waves, and make the rollout ready. `accept`: the reason for
    which the gates' findings may pass; without one Blocked is raised, and nothing is touched."""
    with store.transaction():
        rollout = store.rollouts.check_allowed(id, _AGAIN)
        done = store.rollouts.members(rollout.id, upto=rollout.wave, statuses=("done",))
        open_ = [m for m in done if m.findings and not m.accepted]
        if open_ and not accept.strip():
            raise Blocked(
                f"rollout {rollout.id}: {open_[0].connection}: {open_[0].findings[0]}",
                hint='`--accept "REASON"` lets it pass, `instep rollout rollback` takes the wave back',
            )
        store.rollouts.reopen(rollout.id, _AGAIN)
        store.rollouts.accept(rollout.id, rollout.wave, accept, who)
        again = store.rollouts.members(rollout.id, upto=rollout.wave, statuses=UNDONE)
        for member in again:
            store.rollouts.move(rollout.id, member.connection, before("waiting"), "waiting")
        look = tuple(m.connection for m in again if m.status == "blocked")
        return _forward(store, rollout, every, look)


def to_roll_back(store: Store, id: str, *, wave: int = 0, connections: Sequence[str] = ()) -> Course:
    """Return what a rollback covers; `wave` 0 is the latest that has begun. Raises InstepError if there is nothing
    to roll back, Conflict while another process runs the rollout."""
    rollout = store.rollouts.get(id)
    course = Course(wave or rollout.wave, True, (), tuple(connections))
    if not to_take_back(store, rollout, course):
        raise InstepError(
            f"rollout {rollout.id}: there is nothing to roll back of {course.text.removesuffix(' back')}",
            hint=f"see `instep rollout status {rollout.id} --all`",
        )
    store.rollouts.check_allowed(rollout.id, FREE)
    return course


def to_take_back(store: Store, rollout: Rollout, course: Course) -> list[Member]:
    """Return the connections whose patch was applied and not rolled back; raises InstepError for one that is not
    part of the rollout."""
    if course.connections:
        members = [store.rollouts.member(rollout.id, name) for name in course.connections]
    else:
        members = store.rollouts.members(rollout.id, wave=course.upto)
    return [m for m in members if m.before and m.status in (*before("rolled_back"), "running")]


def _forward(store: Store, rollout: Rollout, every: bool, look: tuple[str, ...] = ()) -> Course:
    if every:
        return Course(rollout.of, look=look)
    left = store.rollouts.members(rollout.id, statuses=("waiting", "running"), limit=1)
    return Course(max(rollout.wave, left[0].wave if left else 0), look=look)
