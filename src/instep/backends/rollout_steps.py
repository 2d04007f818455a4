"""A step of a rollout, followed until the worker that carries it on is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from instep.backends.remote_jobs import error_of
from instep.control.rollouts.machine import member_line
from instep.operations.queries.decisions import ListRolloutConnections
from instep.operations.queries.work import GetQueuedJob

if TYPE_CHECKING:
    from instep.backends.protocol import Backend
    from instep.control.queries.decisions import RolloutMember


def follow_step(backend: Backend, request: Any, notify_user: Callable[[str], None], wait: Callable[[], None]) -> None:
    """Request a step, and tell of each connection that has ended, until the job has. Raises the error that ended it.

    `wait` passes the time between two looks.
    """
    seen = _members(backend, request.rollout)
    job = backend.operations.perform(request).job
    notify_user(f"a worker runs it (job {job}), even if this command is interrupted")
    while True:
        queued = backend.query(GetQueuedJob(job))
        now = _members(backend, request.rollout)
        for name, member in now.items():
            if member != seen.get(name) and member.status not in ("waiting", "running"):
                notify_user(member_line(member))
        seen = now
        if queued.over:
            break
        wait()
    if queued.status != "done":
        raise error_of(queued)


def _members(backend: Backend, rollout: str) -> dict[str, RolloutMember]:
    return {one.connection: one for one in backend.items(ListRolloutConnections(rollout))}
