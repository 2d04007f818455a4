"""Advance a rollout by one turn of a worker."""

from __future__ import annotations

from instep.operations.spec import JobPolicy, OperationSpec

SPEC = OperationSpec(
    "rollout",
    role="approver",
    route="POST /rollouts/{rollout}/resume",
    work="instep.worker.perform:rollout",
    job=JobPolicy(attempts=20, runs_while_paused=False),
)
