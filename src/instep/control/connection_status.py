"""What a connection is doing, in the words that other products' clients know, from runs, jobs and pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from instep.store.runs import Outcomes

SyncState = Literal["scheduled", "syncing", "paused", "rescheduled"]
SetupState = Literal["incomplete", "connected", "broken"]


@dataclass(frozen=True)
class Pending:
    """A queued or running job that moves rows. `attempt` counts from 1, `due` is when it may begin."""

    running: bool
    due: datetime | None = None
    attempt: int = 1


@dataclass(frozen=True)
class Status:
    """`historical`: the first sync is not done yet. `rescheduled_for` is set while it is rescheduled only."""

    setup: SetupState
    sync: SyncState
    delayed: bool
    historical: bool
    paused: bool
    succeeded: datetime | None = None
    failed: datetime | None = None
    rescheduled_for: datetime | None = None


def status(
    outcomes: Outcomes,
    pending: Sequence[Pending],
    now: datetime,
    *,
    paused: bool,
    late_after: float,
    complete: bool = True,
    broken: bool = False,
) -> Status:
    """`late_after`: seconds without a good sync after which it is delayed. `complete`: it could run at all; `broken`:
    what it was set up with does not work any more."""
    later = [p.due for p in pending if _is_later(p, now) and p.attempt > 1 and p.due]
    sync: SyncState
    if outcomes.running or any(p.running or not _is_later(p, now) for p in pending):
        sync = "syncing"
    elif paused:
        sync = "paused"
    else:
        sync = "rescheduled" if later else "scheduled"
    return Status(
        setup="broken" if complete and broken else "connected" if complete else "incomplete", sync=sync, paused=paused,
        delayed=_is_delayed(outcomes, now, late_after) and not paused, historical=outcomes.succeeded is None,
        succeeded=outcomes.succeeded, failed=outcomes.failed,
        rescheduled_for=min(later) if sync == "rescheduled" else None,
    )  # fmt: skip


def _is_later(pending: Pending, now: datetime) -> bool:
    return not pending.running and pending.due is not None and pending.due > now


def _is_delayed(outcomes: Outcomes, now: datetime, late_after: float) -> bool:
    """Syncs that never succeeded are not late but incomplete."""
    last = outcomes.succeeded
    return last is not None and (now - last).total_seconds() > late_after
