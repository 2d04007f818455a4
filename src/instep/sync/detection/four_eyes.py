"""Four eyes: a destructive change is not applied on behalf of the person who approved it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from instep.errors import Blocked
from instep.model import Review
from instep.schema.catalog.catalog import Catalog
from instep.schema.changes.describe import describe, key
from instep.schema.changes.diff import diff
from instep.schema.planning.plan import Plan
from instep.schema.planning.projection import pair_tables
from instep.schema.policy.policy import Decision
from instep.schema.policy.removal import follow_keys
from instep.store.server.persons import persons
from instep.sync.context import SyncContext
from instep.sync.detection.refused import RULE as REFUSED

DESTRUCTIVE = frozenset(
    {
        "schema.removed",
        "table.removed",
        "table.replaced",
        "column.removed",
        "column.narrowed",
        "column.retyped",
        "key.changed",
        "key.removed",
        "cursor.changed",
        "cursor.removed",
    }
)

RULE = "four eyes"
OLDER = "it was open before the policy applied it: with four_eyes one person approves it, and another one applies it"
_NOT_APPLIED = ("waits for a review", "not applied", "the table is paused", "the connection is paused")
"""Beginning of `Decision.why` where a policy refuses a change."""
_BY_PERSON = frozenset({"review", "selection"})


def own_word(context: SyncContext, kind: str, review: Review | None) -> bool:
    """Return whether nobody but the person for whom this pipe works has said yes to a destructive change."""
    if not context.four_eyes or review is None or kind not in DESTRUCTIVE:
        return False
    if review.status != "approved":
        return False
    keys = context.store.api_keys
    return persons(keys, context.who) <= persons(keys, review.decided_by)


def was_pending(context: SyncContext, kind: str, review: Review | None) -> bool:
    """Return whether a destructive change stands that the policy has kept out so far, and that nobody has approved.

    Who may set a policy could accept alone what waits for a second person, so another policy decides only about what
    comes after it: a change that was recorded as held (or as ignored) is answered for itself, by one person who
    approves it and another one for whom it is applied. So is one that somebody had approved and that the destination
    has refused. What else holds a change back (a removal that is not confirmed yet, a key that is asked about, a
    switch) does not count: it ends by itself, and no person was asked."""
    if not context.four_eyes or review is None or kind not in DESTRUCTIVE or review.status != "open":
        return False
    refused = review.rule == REFUSED and bool(review.decided_by)
    return refused or review.rule == RULE or (review.rule not in _BY_PERSON and review.why.startswith(_NOT_APPLIED))


def out_of_sight(
    context: SyncContext,
    existing: Mapping[str, Review],
    keys: Collection[str],
    accepted: Catalog,
    sources: Sequence[Catalog],
) -> frozenset[str]:
    """Return the content keys of standing destructive changes that a detection did not find but has not disproved.

    Whoever may select, exclude or set up a table could otherwise let a change vanish, set a policy that accepts it,
    and bring it back as a new one. So it goes on standing while the whole source, as it is (the first of `sources`)
    or with the settings (the others), still differs so from what is accepted, or lacks the table. `keys`: the content
    keys of what the detection has decided."""
    if not context.four_eyes:
        return frozenset()
    missing = {k: r for k, r in existing.items() if r.kind in DESTRUCTIVE and k not in keys}
    if not missing:
        return frozenset()
    differing = {key(change) for source in sources for change in diff(accepted, source)}
    paired = pair_tables(accepted.tables, sources[0])
    absent = {t.ref for t in accepted.tables if not t.retained and t.ref not in paired}
    return frozenset(k for k, r in missing.items() if k in differing or r.table in absent)


def second_person(
    context: SyncContext, decisions: Sequence[Decision], answers: Mapping[str, Review]
) -> tuple[Decision, ...]:
    """Return the decisions with those held that wait for somebody else. What a policy accepts is not held, unless the
    change was there before the policy let it in (`was_pending`) or this very person has approved it: the policy may be
    of the same person. `answers` by content key."""

    def for_second_person(decision: Decision) -> Decision:
        review = answers.get(key(decision.change))
        if review is not None and own_word(context, decision.change.kind, review):
            return _for_review(
                decision, f"approved by {review.decided_by}: with four_eyes another person has to apply it"
            )
        lets_in = decision.applied or decision.effect == "waiting"
        if lets_in and was_pending(context, decision.change.kind, review):
            return _for_review(decision, OLDER)
        return decision

    reviewed = tuple(map(for_second_person, decisions))
    return follow_keys(reviewed) if reviewed != tuple(decisions) else reviewed


def _for_review(decision: Decision, why: str) -> Decision:
    return replace(decision, action="review", rule=RULE, effect="", why=why)


def check_second_person(context: SyncContext, plan: Plan, reviews: Mapping[str, Review]) -> None:
    """Raise Blocked if a plan, whoever has made it, would be applied by the approver of a destructive change in it,
    or has one that waited before policy let it in."""
    for decision in plan.decisions:
        review, kind = reviews.get(key(decision.change)), decision.change.kind
        if decision.applied and own_word(context, kind, review):
            message = f"{describe(decision.change)}: {context.who} has approved this, and four_eyes is on"
            raise Blocked(message, hint="ask another person to apply the plan, or to approve the change")
        if decision.applied and decision.rule != "review" and was_pending(context, kind, review):
            raise Blocked(f"{describe(decision.change)}: {OLDER}", hint="approve the change, and plan again")
