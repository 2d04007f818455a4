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


def forget_some(store: Store, retention: RetentionSection, now: datetime, limit: int = SLICE) -> Mapping[str, int]:
    """Purge up to `limit` records of each kind and return how many of each, nothing when all is done. What is purged
    was counted before."""
    fold(store)
    forgotten = {
        "rollouts": store.rollouts.prune(now - retention.period("rollouts")),  # before the runs that they name
        "runs": store.prune.runs(now - retention.period("runs"), limit),
        "events": store.prune.events(now - retention.period("events"), limit),
        "deliveries": store.outbox.forget(retention.period("deliveries")),
        "jobs": store.prune.jobs(now - retention.period("jobs"), limit),
        "answers": store.prune.answers(now - RETENTION),
    }
    return {what: count for what, count in forgotten.items() if count}


def forget(store: Store, retention: RetentionSection, now: datetime, *, dry_run: bool = False) -> Mapping[str, int]:
    """Purge all expired records and return how many of each kind. `dry_run`: count them, and purge nothing."""
    if not dry_run:
        return _all(store, retention, now)
    counts: Mapping[str, int] = {}
    try:
        with store.transaction():
            counts = _all(store, retention, now)
            raise _PreviewEnd
    except _PreviewEnd:
        return counts


class _PreviewEnd(Exception):
    """Ends a transaction without its effects."""


def _all(store: Store, retention: RetentionSection, now: datetime) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    while some := forget_some(store, retention, now):
        total.update(some)
    return dict(total)
