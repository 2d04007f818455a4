"""What jobs of rollouts do: a turn of a rollout, a run that is measured, a change taken back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from instep.bootstrap import App
from instep.control.rollouts.course import course_of
from instep.control.rollouts.create import patch_of
from instep.control.rollouts.flow import Rolling, stop
from instep.control.rollouts.patch import Later
from instep.control.rollouts.policies import ServedPolicies
from instep.control.rollouts.queued import QueuedRuns
from instep.errors import Conflict, InstepError
from instep.model import Job, RunOutcome
from instep.sync.pipe import Pipe

TURN = 1.0
"""Seconds between two turns of a rollout."""


def turn(app: App, job: Job) -> Mapping[str, Any] | None:
    """What became of the rollout; None where it comes again: it waits for runs, or for the process of its last turn,
    which was killed a moment ago."""
    store = app.store
    patch = patch_of(store.rollouts.get(job.key).what, app.project, store, ServedPolicies(app.objects))
    runs = QueuedRuns(store, job.key, app.project.source_of, job.who)
    try:
        made = Rolling(store, patch, runs, job.who, in_turns=True).carry_on(job.key, course_of(job.options), job.id)
    except (Later, Conflict):
        return None
    return {"rollout": made.id, "status": made.status, "wave": made.wave, "why": made.why}


def given_up(app: App, job: Job, why: str) -> None:
    """Its job has failed for good: the rollout stands until somebody resumes it."""
    with suppress(InstepError):
        stop(app.store, job.key, "worker", why)


def measured(app: App, job: Job, pipe: Pipe) -> RunOutcome:
    """One sync with what it did to each table: what the gates of a rollout look at."""
    from instep.sync.in_process import measured_sync

    return measured_sync(pipe, app.engine(job.connection), nulls=bool(job.options.get("nulls")))
