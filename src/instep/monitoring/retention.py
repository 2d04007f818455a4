"""Retention of the store by the project's settings: by a worker each day in slices, or at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from instep.monitoring.metrics import fold
from instep.project.sections.channels import RetentionSection
from instep.store.server.audit import RETENTION
from instep.store.store import Store

SLICE = 1000


def forget_some(store: Store, keep: RetentionSection, now: datetime, limit: int = SLICE) -> Mapping[str, int]:
    """Purge up to `limit` records of each kind and return how many of each, nothing when all is done. What is purged
    was counted before."""
    fold(store)
    forgotten = {
        "rollouts": store.rollouts.prune(now - keep.period("rollouts")),  # before the runs that they name
        "runs": store.prune.runs(now - keep.period("runs"), limit),
        "events": store.prune.events(now - keep.period("events"), limit),
        "deliveries": store.outbox.forget(keep.period("deliveries")),
        "jobs": store.prune.jobs(now - keep.period("jobs"), limit),
        "answers": store.prune.answers(now - RETENTION),
    }
    return {what: count for what, count in forgotten.items() if count}


def forget(store: Store, keep: RetentionSection, now: datetime, *, dry_run: bool = False) -> Mapping[str, int]:
    """Return all of it. `dry_run`: nothing is forgotten, and the answer is the real one."""
    if not dry_run:
        return _all(store, keep, now)
    found: Mapping[str, int] = {}
    try:
        with store.transaction():
            found = _all(store, keep, now)
            raise _TakenBack
    except _TakenBack:
        return found


class _TakenBack(Exception):
    """Ends a transaction without its effects."""


def _all(store: Store, keep: RetentionSection, now: datetime) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    while some := forget_some(store, keep, now):
        total.update(some)
    return dict(total)
