"""Accepted changes that the destination refuses: they wait for a person, with the reason."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from instep.events import ChangeReopened, ReviewNeeded
from instep.model import Review
from instep.schema.changes.describe import describe, key
from instep.schema.policy.policy import Decision
from instep.schema.policy.removal import follow_keys
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.table_renames import TableRenames

RULE = "destination"
"""Who decided, where the destination refuses what policy or a person has accepted."""


def for_review(decision: Decision, why: str) -> Decision:
    """Return the decision as one that waits for a review, because the destination refuses the change."""
    return replace(decision, action="review", rule=RULE, effect="", why=why)


def block_tables(
    decisions: Sequence[Decision], refused: Mapping[Ref, str], drifted: Collection[Ref]
) -> tuple[Decision, ...]:
    """Hold what was accepted of `refused` tables (accepted name to why). A table that is not accepted yet fails
    instead; that of a `drifted` one waits for the answer to the drift."""
    if not refused:
        return tuple(decisions)
    places = TableRenames.of(decisions)

    def block(decision: Decision) -> Decision:
        ref = places.before(decision.change)
        if not decision.applied or ref not in refused or decision.change.kind == "table.added":
            return decision
        if ref in drifted:
            return replace(decision, action="ignore", effect="waiting", why=f"waits: {refused[ref]}")
        return decision if decision.effect == "recorded" else for_review(decision, refused[ref])

    return follow_keys(tuple(map(block, decisions)))


def still_refused(decision: Decision, review: Review | None) -> Decision:
    """Return the decision, still waiting if the destination has refused the change, until it is applied, answered or
    listed off."""
    if review is None or review.status != "open" or review.rule != RULE:
        return decision
    if not (decision.applied or decision.needs_review):
        return decision
    return replace(for_review(decision, review.why), action=decision.action if decision.needs_review else "review")


def _is_refused(decision: Decision) -> bool:
    """Return whether the destination refuses the change itself: one that follows a key has the key's rule, and waits
    for the answer to that."""
    return decision.rule == RULE and decision.needs_review


def record_refused(context: SyncContext, decisions: Sequence[Decision], reviews: Mapping[str, Review]) -> None:
    """Open the reviews (by content key) of what the destination refuses, approved ones again. Belongs into the
    transaction that accepts the rest."""
    for decision in decisions:
        review = reviews.get(key(decision.change))
        if not _is_refused(decision) or review is None:
            continue
        context.store.reviews.require_review(review.id, rule=RULE, why=decision.why)
        if review.status == "approved" or review.rule != RULE:
            new = context.run is not None and review.first_seen >= context.run.started and review.status == "open"
            event_type = ReviewNeeded if new else ChangeReopened
            context.store.events.add(event_type(context.name, review.id, review.summary, decision.why))


def refusals(decisions: Sequence[Decision], whole: Collection[Ref] = ()) -> list[str]:
    """Return one sentence for each change that the destination refuses alone: its table, which is not refused as a
    `whole`, goes on with the others."""
    places = TableRenames.of(decisions)
    refused = [d for d in decisions if _is_refused(d) and places.before(d.change) not in whole]
    return [f"{'.'.join(filter(None, places.before(d.change)))}: {d.why}" for d in refused]


def state_of(decision: Decision, review: Review | None) -> str:
    """Return the state of a change that is not accepted: what a person can do about its table."""
    id = review.id if review else describe(decision.change)
    if decision.needs_review:
        return f"{decision.why}: review it ({id})" if decision.rule == RULE else f"review it ({id})"
    if decision.rule == "review":
        return f"{id} was rejected, `instep changes approve {id}` accepts it"
    if decision.effect == "waiting":
        return f"{decision.why} ({id})"
    return f"{id} is left out by {decision.rule} ({decision.why})"
