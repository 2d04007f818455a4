"""The next step of a rollout: a pure function of the status of its connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from instep.control.rollouts.gates import Gates, halt_reasons
from instep.model import Member
from instep.operations.values import MemberStatus, RolloutStatus

if TYPE_CHECKING:
    from instep.control.queries.decisions import RolloutMember

MOVES: Mapping[MemberStatus, frozenset[MemberStatus]] = {
    "waiting": frozenset({"running", "already", "blocked", "skipped"}),
    "running": frozenset({"done", "failed"}),
    "failed": frozenset({"waiting", "skipped", "rolled_back"}),
    "blocked": frozenset({"waiting", "skipped"}),
    "done": frozenset({"rolled_back"}),
    "already": frozenset(),
    "skipped": frozenset(),
    "rolled_back": frozenset(),
}
"""The statuses that may follow each status. A connection that is done, or was there already, is never begun again."""

UNDONE: tuple[MemberStatus, ...] = ("failed", "blocked")
"""The statuses of members that a resume tries again."""


def before(status: MemberStatus) -> tuple[MemberStatus, ...]:
    """Return the statuses that this one may follow."""
    return tuple(was for was, now in MOVES.items() if status in now)


@dataclass(frozen=True)
class BeginConnection:
    """The connection's turn."""

    member: Member


@dataclass(frozen=True)
class Await:
    """Step that waits until one of these runs has ended."""

    members: tuple[Member, ...]


@dataclass(frozen=True)
class Halt:
    """The gates do not let the wave go on."""

    why: tuple[str, ...]


@dataclass(frozen=True)
class WaveFinished:
    """The wave is through."""


Step = BeginConnection | Await | Halt | WaveFinished


def next_step(members: Sequence[Member], limits: Gates, lanes: int) -> Step:
    """Return the next step for the connections of one wave, with at most `lanes` runs at a time. Runs that are under
    way, also those of a process that has died, are seen to their end before a wave halts or is over."""
    under_way = tuple(m for m in members if m.status == "running")
    why = halt_reasons(members, limits)
    waiting = next((m for m in members if m.status == "waiting"), None)
    if waiting is not None and not why and len(under_way) < lanes:
        return BeginConnection(waiting)
    if under_way:
        return Await(under_way)
    return Halt(why) if why else WaveFinished()


def status_of(counts: Mapping[MemberStatus, int]) -> RolloutStatus:
    """Return the number of connections by status of a rollout whose wave is over."""
    if counts.get("waiting") or counts.get("running"):
        return "ready"
    return "partial" if any(counts.get(status) for status in UNDONE) else "done"


def member_line(member: Member | RolloutMember) -> str:
    """Return one line on a connection that has ended in a rollout."""
    reason = member.error or (member.why if member.status in ("blocked", "already") else "")
    findings = f": {'; '.join(member.findings)}" if member.findings else ""
    return (
        f"wave {member.wave}: {member.connection} {status_word(member.status)}{f': {reason}' if reason else findings}"
    )


def status_word(status: str) -> str:
    """Return the status of a connection in a rollout as people read it."""
    return {
        "rolled_back": "rolled back",
        "blocked": "does not fit",
        "already": "already applied",
        "waiting": "pending",
    }.get(status, status)
