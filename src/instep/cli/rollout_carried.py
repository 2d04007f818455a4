"""Who carries a rollout on for a command: a worker, where one lives, while the command follows; else this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from instep.cli.context import say
from instep.errors import ConnectError, InstepError

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.control.rollouts.flow import Rolling
    from instep.model import Job, Member, Rollout

_POLL = 0.5


class Asks(Protocol):
    """What a command wants of a rollout; each answers it as it is in the end."""

    def advance(self, every: bool) -> Rollout: ...

    def resume(self, every: bool, accept: str) -> Rollout: ...

    def roll_back(self, wave: int, connections: Sequence[str]) -> Rollout: ...


def carry(app: App, id: str, wish: Callable[[Asks], Rollout]) -> Rollout:
    """Until the rollout stands again. ConnectError if the last worker is gone before that."""
    from instep.bootstrap import user
    from instep.control.rollouts.queued import withdraw

    if app.store.workers.live():
        return wish(_ByWorkers(app, id, user()))
    withdraw(app.store, id, user())
    return wish(_Here(app, id, user()))


@dataclass(frozen=True)
class _Here:
    app: App
    id: str
    who: str

    def advance(self, every: bool) -> Rollout:
        return self._rolling().advance(self.id, every=every)

    def resume(self, every: bool, accept: str) -> Rollout:
        return self._rolling().resume(self.id, every=every, accept=accept)

    def roll_back(self, wave: int, connections: Sequence[str]) -> Rollout:
        return self._rolling().roll_back(self.id, wave=wave, connections=connections)

    def _rolling(self) -> Rolling:
        from instep.cli.rollout_text import told
        from instep.control.rollouts.create import patch_of
        from instep.control.rollouts.flow import Rolling
        from instep.control.rollouts.policies import ServedPolicies
        from instep.sync.in_process import InProcess

        app, what = self.app, self.app.store.rollouts.get(self.id).what
        patch = patch_of(what, app.project, app.store, ServedPolicies(app.objects))
        return Rolling(app.store, patch, InProcess(app.pipe, app.engine), self.who, told)


@dataclass(frozen=True)
class _ByWorkers:
    app: App
    id: str
    who: str

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
        say(f"a worker carries it on (job {job.id}); it goes on if this command is interrupted")
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
        from instep.cli.rollout_text import told

        now = self._members()
        for name, member in now.items():
            if member != seen.get(name) and member.status not in ("waiting", "running"):
                told(member)
        return now
