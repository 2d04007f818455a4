"""Pauses by policy: they begin with a change that is not accepted, and end when the source reverts it."""

from __future__ import annotations

from collections.abc import Mapping, Set

from instep.events import Paused, Resumed
from instep.model import Review
from instep.schema.changes.describe import describe, key
from instep.schema.policy.policy import OPTION
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.detect import DetectionResult, detect_if_changed, record, redetect_from_store
from instep.sync.detection.refused import RULE as REFUSED
from instep.sync.detection.table_renames import TableRenames


def pause_and_resume(context: SyncContext, detection: DetectionResult, reviews: Mapping[str, Review]) -> None:
    """Pause what decisions say, and resumes what an obsolete change had paused.

    A table is paused under its accepted name.
    """
    places = TableRenames.of(detection.decisions)
    with context.transaction():
        let_in = {key(d.change) for d in detection.decisions if d.applied}
        still = {r.id for k, r in reviews.items() if r.status == "open" and k not in let_in}
        _release(context, still, {r.id for r in reviews.values()}, detection.denied.keys())
        for decision in detection.decisions:
            if not decision.pauses:
                continue
            review = reviews[key(decision.change)]
            ref = places.before(decision.change) if decision.action == "pause_table" else None
            refusal = f": {review.why}" if review.rule == REFUSED else ""
            reason = f"{describe(decision.change)}{refusal} ({review.id})"
            if context.store.pauses.pause(context.name, reason, change=review.id, table=ref):
                path = ".".join(filter(None, ref)) if ref else ""
                context.store.events.add(Paused(context.name, reason, path, review.id))


def _release(context: SyncContext, open_reviews: Set[str], keys: Set[str], denied: Set[Ref]) -> None:
    """Resume what was paused for a change: after the source was reverted, after an answer, where policy accepts it
    now (unless the policy is `stop` or breaks whole connections), and where the change was not `keys` because its
    object is not read. Pauses of tables that may not be read stay: nobody knows what became of their change."""
    for pause in context.store.pauses.active(context.name):
        if not pause.change or pause.change in open_reviews or pause.table in denied:
            continue
        review = context.store.reviews.get(pause.change)
        if not releases(context, review):
            continue
        by = "policy" if review.id in keys else "selection"
        who = {"open": by, "obsolete": "source reverted"}.get(review.status, review.status)
        resume(context, pause.change, who)


def resume(context: SyncContext, change: str, who: str) -> None:
    """End what this change has paused."""
    for ended in context.store.pauses.resume_change(context.name, change, who=who):
        path = ".".join(filter(None, ended.table)) if ended.table else ""
        context.store.events.add(Resumed(context.name, who, path))


def releases(context: SyncContext, review: Review) -> bool:
    """Return whether a pause ends by itself once its change is answered or gone; never one by an option of the
    detector."""
    return context.policy.preset not in ("stop", "propagate_all", "propagate_columns") and not review.rule.startswith(
        OPTION
    )


def decide_anew(context: SyncContext) -> None:
    """Decide about what was found last by the policy and the settings of today, without the source."""
    if (seen := redetect_from_store(context, {})) is not None:
        record(context, seen, count=False)


def reconsider(context: SyncContext) -> None:
    """Detect again for a connection that a change has paused: the source may have reverted it, or a person may have
    answered. A paused connection would otherwise never detect again."""
    paused = context.store.pauses.connection(context.name)
    if paused is None or not paused.change or not releases(context, context.store.reviews.get(paused.change)):
        return
    detection = detect_if_changed(context)
    pause_and_resume(context, detection, record(context, detection))
