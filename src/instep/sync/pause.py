"""Holds what policy does not let in: pauses open with a change, and end when the source takes it back."""

from __future__ import annotations

from collections.abc import Mapping

from instep.events import Paused, Resumed
from instep.model import Review
from instep.schema.change import describe, key, table_of
from instep.sync.detect import Detection
from instep.sync.pipe import Pipe


def hold(pipe: Pipe, detection: Detection, reviews: Mapping[str, Review]) -> None:
    """Pauses what decisions say, and resumes what an obsolete change had paused.

    A table is paused under its accepted name.
    """
    with pipe.store.transaction():
        _release(pipe, {r.id for r in reviews.values() if r.status == "open"})
        for decision in detection.decisions:
            if not decision.pauses:
                continue
            review = reviews[key(decision.change)]
            ref = table_of(decision.change) if decision.action == "pause_table" else None
            reason = f"{describe(decision.change)} ({review.id})"
            if pipe.store.pauses.pause(pipe.name, reason, change=review.id, table=ref):
                path = ".".join(filter(None, ref)) if ref else ""
                pipe.store.events.add(Paused(pipe.name, reason, path, review.id))


def _release(pipe: Pipe, open_reviews: set[str]) -> None:
    """Automatic resume on a reverted source, unless the policy is `stop` or breaks whole connections."""
    if pipe.policy.preset in ("stop", "propagate_all", "propagate_columns"):
        return
    for pause in pipe.store.pauses.active(pipe.name):
        if pause.change and pause.change not in open_reviews:
            for ended in pipe.store.pauses.resume_change(pipe.name, pause.change, who="source reverted"):
                path = ".".join(filter(None, ended.table)) if ended.table else ""
                pipe.store.events.add(Resumed(pipe.name, "source reverted", path))
