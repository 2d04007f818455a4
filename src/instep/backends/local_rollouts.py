"""Rollouts at the project of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from instep.control.rollouts.machine import member_line
from instep.errors import ConnectError, InstepError

if TYPE_CHECKING:
    from instep.backends.protocol import RolloutRequest
    from instep.bootstrap import App
    from instep.control.rollouts.create import RolloutOrder
    from instep.control.rollouts.flow import Rolling
    from instep.control.rollouts.patch import Patch
    from instep.model import Job, Member, Rollout
    from instep.store.work.rollouts import RolloutDraft


_POLL = 0.5


class Asks(Protocol):
    """The steps of a rollout that a command can request; each returns the rollout as it is afterwards."""

    def advance(self, every: bool) -> Rollout: ...

    def resume(self, every: bool, accept: str) -> Rollout: ...

    def roll_back(self, wave: int, connections: Sequence[str]) -> Rollout: ...


def carry(app: App, id: str, notify_user: Callable[[str], None], change_filter: Callable[[Asks], Rollout]) -> Rollout:
    """Carry a rollout on until it waits again. ConnectError if the last worker is gone before that."""
    from instep.bootstrap import user
    from instep.control.rollouts.queued import withdraw

    if app.store.workers.live():
        return change_filter(_ByWorkers(app, id, user(), notify_user))
    withdraw(app.store, id, user())
    return change_filter(_Here(app, id, user(), notify_user))


@dataclass(frozen=True)
class _Here:
    app: App
    id: str
    who: str
    notify_user: Callable[[str], None]

    def advance(self, every: bool) -> Rollout:
        return self._rolling().advance(self.id, every=every)

    def resume(self, every: bool, accept: str) -> Rollout:
        return self._rolling().resume(self.id, every=every, accept=accept)

    def roll_back(self, wave: int, connections: Sequence[str]) -> Rollout:
        return self._rolling().roll_back(self.id, wave=wave, connections=connections)

    def _rolling(self) -> Rolling:
        from instep.control.rollouts.create import patch_of
        from instep.control.rollouts.flow import Rolling
        from instep.control.rollouts.policies import ServedPolicies
        from instep.sync.in_process import InProcess

        app, what = self.app, self.app.store.rollouts.get(self.id).what
        patch = patch_of(what, app.project, app.store, ServedPolicies(app.objects))
        runs = InProcess(app.sync_context, app.engine)
        return Rolling(app.store, patch, runs, self.who, lambda member: self.notify_user(member_line(member)))


@dataclass(frozen=True)
class _ByWorkers:
    app: App
    id: str
    who: str
    notify_user: Callable[[str], None]

    def advance(self, every: bool) -> Rollout:
        from instep.control.rollouts.queued import advance

        seen = self._members()
        return self._follow(advance(self.app.store, self.id, self.who, every=every)[0], seen)

    def resume(self, every: bool, accept: str) -> Rollout:
        from instep.control.rollouts.queued import resume

        job = resume(self.app.store, self.id, self.who, every=every, accept=accept)
        return self._follow(job, self._members())

    def roll_back(self, wave: int, connections: Sequence[str]) -> Rollout:
        from instep.control.rollouts.queued import roll_back

        seen = self._members()
        return self._follow(roll_back(self.app.store, self.id, self.who, wave=wave, connections=connections), seen)

    def _members(self) -> dict[str, Member]:
        return {m.connection: m for m in self.app.store.rollouts.members(self.id)}

    def _follow(self, job: Job, seen: dict[str, Member]) -> Rollout:
        """Tells of each connection that has ended, until the job has."""
        self.notify_user(f"a worker runs it (job {job.id}), even if this command is interrupted")
        while True:
            job = self.app.store.jobs.get(job.id)
            seen = self._told(seen)
            if job.over:
                break
            if not self.app.store.workers.live():
                raise ConnectError(f"job {job.id} waits, and no worker is left", hint="start one: `instep worker`")
            time.sleep(_POLL)
        if job.status != "done":
            raise InstepError(f"job {job.id} {job.status}: {job.error}", hint=f"see `instep queue show {job.id}`")
        return self.app.store.rollouts.get(self.id)

    def _told(self, seen: dict[str, Member]) -> dict[str, Member]:
        now = self._members()
        for name, member in now.items():
            if member != seen.get(name) and member.status not in ("waiting", "running"):
                self.notify_user(member_line(member))
        return now


class LocalRollouts:
    def __init__(self, app: App, notify_user: Callable[[str], None]) -> None:
        self.app = app
        self._notify = notify_user

    @property
    def _who(self) -> str:
        from instep.bootstrap import user

        return user()

    def find(self) -> list[Rollout]:
        return self.app.store.rollouts.find()

    def get(self, id: str) -> Rollout:
        return self.app.store.rollouts.get(id)

    def text(self, made: Rollout) -> str:
        from instep.control.rollouts.create import patch_of

        return patch_of(made.what, self.app.project, self.app.store).text

    def members(self, id: str) -> list[Member]:
        return self.app.store.rollouts.members(id)

    def detect(self, wanted: RolloutRequest) -> Mapping[str, str]:
        from instep.control.rollouts.create import detect_all
        from instep.control.rollouts.waves import chosen
        from instep.sync.in_process import InProcess

        app = self.app
        return detect_all(InProcess(app.sync_context, app.engine), chosen(app.project, wanted.group), "create")

    def draft(self, wanted: RolloutRequest) -> tuple[RolloutDraft, str]:
        from instep.control.rollouts.create import draft

        order, names = self._order(wanted)
        return draft(order, names, self._who), order.patch.text

    def create(self, wanted: RolloutRequest) -> Rollout:
        from instep.control.rollouts.create import create

        return create(self.app.store, self.draft(wanted)[0])

    def _order(self, wanted: RolloutRequest) -> tuple[RolloutOrder, list[str]]:
        from instep.control.rollouts.create import RolloutOrder
        from instep.control.rollouts.gates import gates
        from instep.control.rollouts.waves import chosen

        names = chosen(self.app.project, wanted.group)
        patch = self._patch(wanted, names)
        return RolloutOrder(patch, wanted.group, wanted.sizes, gates(wanted.gates), wanted.canary), names

    def _patch(self, wanted: RolloutRequest, names: list[str]) -> Patch:
        from instep.control.rollouts.changes import change_patch
        from instep.control.rollouts.policies import ServedPolicies, policy_patch
        from instep.control.rollouts.selections import SelectionPatch

        if wanted.change is not None:
            verdict, change = wanted.change
            return change_patch(self.app.store, "approved" if verdict == "approved" else "rejected", change, names)
        if wanted.preset:
            return policy_patch(self.app.project, wanted.preset, ServedPolicies(self.app.objects))
        return SelectionPatch(self.app.project, self.app.store, tuple(wanted.turns))

    def advance(self, id: str, *, every: bool) -> Rollout:

        return carry(self.app, id, self._notify, lambda asks: asks.advance(every))

    def resume(self, id: str, *, every: bool, accept: str) -> Rollout:

        return carry(self.app, id, self._notify, lambda asks: asks.resume(every, accept))

    def roll_back(self, id: str, *, wave: int, connections: Sequence[str]) -> Rollout:

        return carry(self.app, id, self._notify, lambda asks: asks.roll_back(wave, connections))

    def stop(self, id: str, reason: str) -> Rollout:
        from instep.control.rollouts.flow import stop

        return stop(self.app.store, id, self._who, reason)

    def skip(self, id: str, connections: Sequence[str], reason: str) -> Rollout:
        from instep.control.rollouts.flow import skip

        skip(self.app.store, id, list(connections), reason, self._who)
        return self.app.store.rollouts.get(id)
