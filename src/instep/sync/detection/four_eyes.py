"""Four eyes: a destructive change is not carried out on behalf of the person who has approved it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from instep.errors import Blocked
from instep.model import Review
from instep.schema.change import describe, key
from instep.schema.plan import Plan
from instep.schema.policy import Decision
from instep.sync.pipe import Pipe

DESTRUCTIVE = frozenset(
    {
        "schema.removed", "table.removed", "table.replaced", "column.removed", "column.narrowed", "column.retyped",
        "key.changed", "key.removed", "cursor.changed", "cursor.removed",
    }
)  # fmt: skip


def own_word(pipe: Pipe, kind: str, review: Review | None) -> bool:
    """Whether nobody but the person for whom this pipe works has said yes to a destructive change."""
    if not pipe.four_eyes or review is None or kind not in DESTRUCTIVE:
        return False
    return review.status == "approved" and review.decided_by == pipe.who


def second_person(pipe: Pipe, decisions: Sequence[Decision], answers: Mapping[str, Review]) -> tuple[Decision, ...]:
    """The decisions with those held that wait for somebody else; what policy lets in by itself is not held. `answers`
    by content key."""

    def one(decision: Decision) -> Decision:
        review = answers.get(key(decision.change))
        if decision.applied or review is None or not own_word(pipe, decision.change.kind, review):
            return decision
        why = f"approved by {review.decided_by}: with four_eyes somebody else has to apply it"
        return replace(decision, action="review", rule="four eyes", effect="", why=why)

    return tuple(map(one, decisions))


def check_second_person(pipe: Pipe, made: Plan, reviews: Mapping[str, Review]) -> None:
    """Blocked if a plan, whoever has made it, would be applied by the approver of a destructive change in it."""
    for decision in made.decisions:
        review = reviews.get(key(decision.change))
        if decision.applied and decision.rule == "review" and own_word(pipe, decision.change.kind, review):
            said = f"{describe(decision.change)}: {pipe.who} has approved this, and four_eyes is on"
            raise Blocked(said, hint="let somebody else apply the plan, or approve the change")
