"""Advance rollouts wave by wave and connection by connection, and roll them back.

A connection's turn is one transaction of the store: its line of the compatibility table is looked at again, the patch
is applied with what takes it back, and it is running. Its run comes after that. A process that dies in between leaves
it running, and the next one sees that run to its end; nothing is applied twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from instep.control.rollouts.course import FREE, Course, to_advance, to_resume, to_roll_back, to_take_back
from instep.control.rollouts.create import detect_all
from instep.control.rollouts.gates import findings, gates_of
from instep.control.rollouts.machine import (
    UNDONE,
    Await,
    BeginConnection,
    Halt,
    WaveFinished,
    before,
    next_step,
    status_of,
    status_word,
)
from instep.control.rollouts.patch import CompatibilityLine, Patch, RunsConnections
from instep.crash import crashpoint
from instep.errors import Fenced, InstepError
from instep.events import RolloutApplied, RolloutMoved, RolloutTakenBack
from instep.model import Member, Rollout, RunOutcome
from instep.operations.values import MemberStatus, RolloutStatus
from instep.store.store import Store

MemberCallback = Callable[[Member], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Rolling:
    """One rollout in the hands of one process."""

    store: Store
    patch: Patch
    runs: RunsConnections
    who: str
    on_member: MemberCallback = field(default=lambda member: None)
    """Hears of each connection that has ended or was left out."""
    in_turns: bool = False
    """True if an interrupt of this process does not end the rollout: another one goes on."""

    def advance(self, id: str, *, every: bool = False) -> Rollout:
        """See `to_advance`."""
        return self.carry_on(id, to_advance(self.store, id, every=every))

    def resume(self, id: str, *, every: bool = False, accept: str = "") -> Rollout:
        """See `to_resume`."""
        return self.carry_on(id, to_resume(self.store, id, self.who, every=every, accept=accept))

    def roll_back(self, id: str, *, wave: int = 0, connections: Sequence[str] = ()) -> Rollout:
        """See `to_roll_back`."""
        return self.carry_on(id, to_roll_back(self.store, id, wave=wave, connections=connections))

    def carry_on(self, id: str, course: Course, key: str = "") -> Rollout:
        """Advance the rollout as far as its gates allow: forward, or back from the last connection to the first. A
        rollout that is rolled back ends as stopped; what could not be undone stays as it is, with the reason. Called
        again with the same `key` it continues. Raises Conflict while another process advances it, Later where a turn
        ends before that."""
        now = self.store.rollouts.get(id)
        if course.back:
            return self._back(now, course, key)
        if now.status in ("halted", "partial", "done"):
            return now
        with self._claimed(now.id, ("ready", "stopped"), as_is=now.status == "stopped") as claimed:
            if claimed.status == "stopped":
                return self._stopped(claimed)
            detect_all(self.runs, course.look, key or f"{claimed.id}/{claimed.fence}")
            return self._waves(claimed, course.upto)

    def _back(self, now: Rollout, course: Course, key: str) -> Rollout:
        with self._claimed(now.id, FREE) as claimed:
            dead = self.store.rollouts.members(claimed.id, statuses=("running",))
            self._end_all(claimed, {m.connection: m for m in dead})
            for member in reversed(to_take_back(self.store, claimed, course)):
                self._take_back(claimed, member, key or f"{claimed.id}/{claimed.fence}")
            return self._release(claimed, "stopped", f"{course.text.removesuffix(' back')} rolled back by {self.who}")

    @contextmanager
    def _claimed(self, id: str, allowed: Sequence[RolloutStatus], *, as_is: bool = False) -> Iterator[Rollout]:
        """Claim the rollout for the block. A process that is killed releases nothing: its lease ends, or it is found
        to be gone."""
        claimed = self.store.rollouts.claim(id, allowed, as_is=as_is)
        try:
            with _Beating(self.store, claimed):
                yield claimed
        except (Exception, KeyboardInterrupt) as error:
            with suppress(InstepError):
                if self.in_turns:
                    self.store.rollouts.unclaim(claimed)
                else:
                    self._release(claimed, "stopped", f"interrupted: {error or type(error).__name__}")
            raise

    def _release(self, rollout: Rollout, status: RolloutStatus, why: str = "") -> Rollout:
        crashpoint("rollout.released")
        with self.store.transaction():
            now = self.store.rollouts.release(rollout, status, why)
            self.store.events.add(RolloutMoved("", now.id, now.status, now.wave, now.why, self.who))
        return now

    def _stopped(self, rollout: Rollout) -> Rollout:
        """Stop the rollout: running connections finish, nothing new begins."""
        under_way = self.store.rollouts.members(rollout.id, statuses=("running",))
        self._end_all(rollout, {m.connection: m for m in under_way})
        return self._release(rollout, "stopped")

    def _waves(self, rollout: Rollout, upto: int) -> Rollout:
        """Return one after the other, what is left of each."""
        for number in range(1, upto + 1):
            if not self.store.rollouts.members(rollout.id, wave=number, statuses=("waiting", "running"), limit=1):
                continue
            if (ended := self._wave(rollout, number)) is not None:
                return ended
        return self._end(rollout)

    def _wave(self, rollout: Rollout, number: int) -> Rollout | None:
        """Run one wave; return the rollout if something stopped it, None once it is through."""
        if number > rollout.wave:
            self.store.rollouts.begin_wave(rollout, number)
        limits = gates_of(rollout.gates)
        members = {m.connection: m for m in self.store.rollouts.members(rollout.id, wave=number)}
        while True:
            match next_step(list(members.values()), limits, self.runs.lanes):
                case BeginConnection(member):
                    now = self._begin(rollout, member)
                    if now is None:
                        self._end_all(rollout, members)
                        return self._release(rollout, "stopped")
                    crashpoint("rollout.begun")
                    members[now.connection] = now
                    if now.status != "running":
                        self.on_member(now)
                case Await(under_way):
                    self._await(rollout, members, under_way)
                case Halt(why):
                    return self._release(rollout, "halted", why[0])
                case WaveFinished():
                    return None

    def _end_all(self, rollout: Rollout, members: dict[str, Member]) -> None:
        """Wait for running connections to finish, and start nothing new."""
        while under_way := tuple(m for m in members.values() if m.status == "running"):
            self._await(rollout, members, under_way)

    def _await(self, rollout: Rollout, members: dict[str, Member], under_way: Sequence[Member]) -> None:
        ended = False
        for member in under_way:
            key = f"{rollout.id}/{member.attempt}"
            measured = gates_of(rollout.gates).nulls is not None
            outcome = self.runs.sync(member.connection, key, measured=measured)
            if outcome is not None:
                ended = True
                members[member.connection] = self._ended(rollout, member, outcome)
        if not ended:
            self.runs.wait()

    def _begin(self, rollout: Rollout, member: Member) -> Member | None:
        """Return the connection's turn, as far as it fits now; None once the rollout was stopped."""
        return _own(
            lambda: self._applied(rollout, member.connection),
            lambda why: self._unfit(rollout, member, why),
        )

    def _applied(self, rollout: Rollout, name: str) -> Member | None:
        was = before("running")
        with self.store.transaction():
            if not self.store.rollouts.goes_on(rollout):
                return None
            now = self.store.rollouts.member(rollout.id, name)
            if now.status not in was:
                return now
            line = self.patch.line(name)
            if line.fit != "applies" and not (now.before and line.fit == "already"):
                return self._left(rollout, now, line)
            back = self.patch.apply(name, self.who) if line.fit == "applies" else {}
            return self.store.rollouts.move(
                rollout.id,
                name,
                was,
                "running",
                fit=line.fit,
                why=line.why,
                before=now.before or back,
                error="",
                attempt=now.attempt + 1,
                who=self.who,
                findings=[],
                accepted="",
            )

    def _left(self, rollout: Rollout, member: Member, line: CompatibilityLine) -> Member:
        """Mark a member that does not fit any more, or has the change already."""
        status: MemberStatus = "already" if line.fit == "already" else "blocked"
        return self._move(rollout, member, status, fit=line.fit, why=line.why)

    def _unfit(self, rollout: Rollout, member: Member, why: str) -> Member:
        with self.store.transaction():
            self.store.rollouts.check(rollout)
            return self._left(rollout, member, CompatibilityLine("conflict", why))

    def _ended(self, rollout: Rollout, member: Member, outcome: RunOutcome) -> Member:
        """Return the member as `done` if its run succeeded and has what was rolled out, else as failed."""
        crashpoint("rollout.ran")
        missing = _own(lambda: self._missing(member), str) if outcome.ok else ""
        good = outcome.ok and not missing
        error = "" if good else missing or outcome.error or f"its run ended {outcome.status}"
        problems = list(findings(outcome, gates_of(rollout.gates))) if good else []
        with self.store.transaction():
            self.store.rollouts.check(rollout)
            now = self._move(
                rollout, member, "done" if good else "failed", run=outcome.run, error=error, findings=problems
            )
            if good:
                self.store.events.add(
                    RolloutApplied(member.connection, rollout.id, self.patch.text, member.wave, self.who)
                )
        crashpoint("rollout.ended")
        self.on_member(now)
        return now

    def _missing(self, member: Member) -> str:
        line = self.patch.line(member.connection)
        return "" if line.fit == "already" else f"the sync went through without it: {line.why}"

    def _move(self, rollout: Rollout, member: Member, status: MemberStatus, **values: object) -> Member:
        return self.store.rollouts.move(rollout.id, member.connection, before(status), status, **values)

    def _end(self, rollout: Rollout) -> Rollout:
        totals: dict[MemberStatus, int] = {}
        for (_, status), number in self.store.rollouts.counts(rollout.id).items():
            totals[status] = totals.get(status, 0) + number
        now = status_of(totals)
        left = ", ".join(f"{totals[s]} {status_word(s)}" for s in UNDONE if totals.get(s))
        return self._release(rollout, now, left if now == "partial" else "")

    def _take_back(self, rollout: Rollout, member: Member, key: str) -> None:
        """Take one member's change back; a failure does not stop the others."""
        now = _own(lambda: self._taken_back(rollout, member, key), lambda why: self._refused(rollout, member, why))
        self.on_member(now)

    def _taken_back(self, rollout: Rollout, member: Member, key: str) -> Member:
        name = member.connection
        if change := self.patch.undone_by(name, member.before):
            outcome = self._undone(name, change, f"{key}/back")
            if not outcome.ok:
                return self._refused(rollout, member, outcome.error)
        with self.store.transaction():
            self.store.rollouts.check(rollout)
            self.patch.take_back(name, member.before, self.who)
            now = self._move(rollout, member, "rolled_back", error="", who=self.who)
            taken = RolloutTakenBack(name, rollout.id, self.patch.text, member.wave, self.who)
            self.store.events.add(taken)
        crashpoint("rollout.back")
        return now

    def _refused(self, rollout: Rollout, member: Member, error: str) -> Member:
        """Record why a member could not be taken back; its status stays."""
        was = member.status
        with self.store.transaction():
            self.store.rollouts.check(rollout)
            return self.store.rollouts.move(
                rollout.id, member.connection, (was,), was, error=f"not rolled back: {error}"
            )

    def _undone(self, name: str, change: str, key: str) -> RunOutcome:
        while (outcome := self.runs.undo(name, change, key)) is None:
            self.runs.wait()
        return outcome


def stop(store: Store, id: str, who: str, why: str = "") -> Rollout:
    """Stop a rollout: no further connection is started; current runs finish."""
    with store.transaction():
        now = store.rollouts.stop(id, f"by {who}{f': {why}' if why else ''}")
        store.events.add(RolloutMoved("", now.id, now.status, now.wave, now.why, who))
    return now


def skip(store: Store, id: str, connections: Sequence[str], why: str, who: str) -> list[Member]:
    """Skip connections of a rollout for this reason; changes already applied to them stay. All or none: raises
    Conflict if one of them is done, or its run is under way."""
    if not why.strip():
        raise InstepError("why are they skipped?", hint='give --reason "..."')
    rollout = store.rollouts.get(id)
    with store.transaction():
        for name in connections:
            store.rollouts.member(rollout.id, name)
        return [
            store.rollouts.move(rollout.id, name, before("skipped"), "skipped", why=why.strip(), who=who)
            for name in connections
        ]


def _own(turn: Callable[[], T], refused: Callable[[str], T]) -> T:
    """Return one connection's turn: what goes wrong with it is its own outcome. Fenced goes on to the whole rollout."""
    try:
        return turn()
    except Fenced:
        raise
    except InstepError as error:
        return refused(f"{error.message}; {error.hint}".rstrip("; "))


class _Beating:
    """Keeps the rollout in this process's hands while runs take their time."""

    def __init__(self, store: Store, rollout: Rollout) -> None:
        self._store, self._rollout = store, rollout
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"rollout {rollout.id}", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._stop.wait(self._store.rollouts.lease.total_seconds() / 3):
            try:
                self._store.rollouts.heartbeat(self._rollout)
            except Fenced:
                return
            except InstepError:
                continue
