"""Preview of an answer to changes, and the check that an approval is about what its giver has seen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from instep.errors import Conflict, StalePlan
from instep.model import Review
from instep.operations.immediate.decisions import AnswerPreview
from instep.operations.values import EXISTING, ReviewStatus
from instep.schema.catalog.catalog import Catalog
from instep.schema.changes.describe import describe, key
from instep.schema.planning.explain import explain
from instep.schema.planning.plan import Plan
from instep.schema.policy.policy import Decision
from instep.sync.context import SyncContext
from instep.sync.detection.approval_fingerprint import moved_side
from instep.sync.detection.detect import DetectionResult, detect, detect_if_changed, record, redetect_from_store
from instep.sync.schema_changes.apply import make_plan


def approving(context: SyncContext, reviews: Sequence[Review]) -> AnswerPreview:
    """Detect, and return what approving these changes of one connection adds to the plan. Raises Conflict if one of
    them is no longer open, and StalePlan if its table has moved at the source or in the accepted schema since the
    change was shown. The current state is recorded, so that it can be reviewed."""
    detection = detect_if_changed(context, count=False)
    now = record(context, detection, count=False)
    for review in reviews:
        _check(review, now.get(review.key))
    answered = _assumed(context, detection, {r.key: replace(now[r.key], status="approved") for r in reviews})
    before, after = make_plan(context, detection), make_plan(context, answered)
    planned = {(s.table, s.text) for s in before.steps}
    steps = tuple(s for s in after.steps if (s.table, s.text) not in planned)
    refused = {ref: why for ref, why in after.refused.items() if ref not in before.refused}
    chosen = _about(after.decisions, {r.key for r in reviews})
    lines = explain(replace(after, decisions=chosen, steps=steps, notes=(), refused=refused))
    return AnswerPreview(tuple(lines), tuple(s.text for s in steps))


def plan_alone(context: SyncContext, change: Review) -> Plan:
    """Look at source and destination and return the plan that carries out this change and no other. Errors are those of
    `approving`."""
    detection = detect_if_changed(context, count=False)
    now = record(context, detection, count=False)
    _check(change, now.get(change.key))
    answers = {
        k: replace(answer, status="approved" if answer.id == change.id else "rejected") for k, answer in now.items()
    }
    return make_plan(context, _assumed(context, detection, answers))


def keeping(context: SyncContext, reviews: Sequence[Review], status: ReviewStatus) -> AnswerPreview:
    """Return the effects while these changes stay out (rejected) or stay open: from the store alone."""
    assumed = {r.key: replace(r, status=status) for r in reviews if r.status in EXISTING}
    detection = redetect_from_store(context, assumed)
    chosen = _about(detection.decisions, assumed.keys()) if detection else ()
    if not chosen:
        return AnswerPreview()
    return AnswerPreview(tuple(explain(Plan("", "", chosen, (), Catalog(), Catalog()))))


def check_approvals(context: SyncContext, plan: Plan) -> None:
    """Raise StalePlan if a plan carries out an approval that was taken back, or that is about another state of its
    table than the one that is there now."""
    approved = [d for d in plan.decisions if d.applied and d.rule == "review"]
    if not approved:
        return
    now = detect_if_changed(context, count=False)
    for decision in approved:
        review = now.reviews.get(key(decision.change))
        if review is None or review.status != "approved":
            raise StalePlan(
                f"{describe(decision.change)}: its approval has expired: the table has changed since",
                hint="plan again, review the change and approve it again",
            )


def refuse_stale(detection: DetectionResult) -> None:
    """Raise StalePlan if this detection found approvals that no longer count."""
    stale = [detection.reviews[k] for k in sorted(detection.stale)]
    if stale:
        raise StalePlan(
            f"change {stale[0].id} was approved, but its table has changed since: {stale[0].summary}",
            hint=f"review it again: `instep changes show {stale[0].id}`, then approve or reject it",
        )


def _check(review: Review, now: Review | None) -> None:
    if review.status in EXISTING and (now is None or now.id != review.id):
        raise Conflict(
            f"change {review.id} is no longer at the source: {review.summary}", hint="see `instep changes list`"
        )
    side = moved_side(review, now.tables_fingerprint) if now else ""
    if side:
        table = ".".join(filter(None, review.table))
        raise StalePlan(
            f"table {table} has changed since change {review.id} was found ({side}): {review.summary}",
            hint=f"review it again: `instep changes show {review.id}`, `instep plan`",
        )


def _assumed(context: SyncContext, seen: DetectionResult, answers: Mapping[str, Review]) -> DetectionResult:
    """Repeat the detection under other answers. After a move to another server the stored discovery does not count."""
    return detect(context, seen.discovery, count=False, stored=not seen.rebound, assumed=answers)


def _about(decisions: Sequence[Decision], keys: Collection[str]) -> tuple[Decision, ...]:
    return tuple(d for d in decisions if key(d.change) in keys)
