"""Simulation of a policy on every recorded change, beside what was decided then. Writes nothing.

The changes that stood together when the source looked the same are decided together, as a detection does it.
What a safeguard held back then (removals that were not confirmed, a mass removal, privacy, a name in use) it
would hold back under any policy that accepts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from instep.control.times import utc
from instep.errors import InstepError, SchemaError
from instep.model import Review
from instep.project.project import Project
from instep.project.sections.policies import PolicySection, to_policy
from instep.schema.changes.describe import Change, change_from_dict, key
from instep.schema.policy.policy import Decision, Explicit, Policy, is_by_policy
from instep.schema.policy.removal import MASS_REMOVAL, decide_all
from instep.schema.policy.similarity import PROPOSAL
from instep.store.store import Store

REMOVALS = ("schema.removed", "table.removed", "column.removed")
DOUBT = "possible rename"
"""The beginning of the reason where a preset wants suspected renames reviewed."""


@dataclass(frozen=True)
class DecisionOutcome:
    """Action that was or would be taken; `text` is the action with its relevant modifiers (`apply, removed: drop`)."""

    action: str
    rule: str
    why: str
    text: str


@dataclass(frozen=True)
class SimulatedDecision:
    """One recorded change: what was decided then, and what would be now."""

    review: Review
    then: DecisionOutcome
    now: DecisionOutcome

    @property
    def differs(self) -> bool:
        return self.then.text != self.now.text


@dataclass(frozen=True)
class Simulation:
    """Simulation of one connection, oldest change first."""

    connection: str
    policy: Policy
    compared: tuple[SimulatedDecision, ...]
    unread: tuple[str, ...]
    """Ids of changes that this version cannot read."""

    @property
    def different(self) -> tuple[SimulatedDecision, ...]:
        return tuple(c for c in self.compared if c.differs)

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Outcome -> how often (then, now), most frequent first."""
        texts = [t for c in self.compared for t in (c.then.text, c.now.text)]
        ordered = sorted(set(texts), key=lambda text: (-texts.count(text), text))
        then, now = [c.then.text for c in self.compared], [c.now.text for c in self.compared]
        return {text: (then.count(text), now.count(text)) for text in ordered}


def moment(text: str) -> datetime:
    """Return a date or time as people write it, in UTC unless it says otherwise."""
    try:
        return utc(text)
    except ValueError:
        raise InstepError(f"{text!r} is not a date", hint="write it as 2026-11-21 or 2026-11-21T09:30") from None


def simulate(
    project: Project, store: Store, connection: str, name: str, section: PolicySection, since: datetime | None = None
) -> Simulation:
    """Decide the recorded changes of a connection by `section`, under the connection's own tags and tables."""
    policy = to_policy(name, section, project.connection(connection).tables, project.option_rules(connection))
    tags = project.connection(connection).tags
    reviews = (r for r in reversed(store.reviews.find(connection)) if r.rule != PROPOSAL)
    recorded = [r for r in reviews if since is None or r.first_seen >= since]
    changes, unread = _changes(recorded)
    groups: dict[str, list[Review]] = {}
    for review in recorded:
        if review.id in changes:
            groups.setdefault(review.source_fingerprint, []).append(review)
    decided: dict[str, Decision] = {}
    for group in groups.values():
        decided |= _decided(group, changes, policy, tags)
    return Simulation(
        connection, policy, tuple(_compare(r, decided[r.id]) for r in recorded if r.id in decided), unread
    )


def _changes(recorded: Sequence[Review]) -> tuple[dict[str, Change], tuple[str, ...]]:
    changes: dict[str, Change] = {}
    unread = []
    for review in recorded:
        try:
            changes[review.id] = change_from_dict(review.change)
        except (SchemaError, LookupError, TypeError):
            unread.append(review.id)
    return changes, tuple(unread)


def _decided(
    group: Sequence[Review], changes: Mapping[str, Change], policy: Policy, tags: tuple[str, ...]
) -> dict[str, Decision]:
    by_key = {r.key: r for r in group}
    together = [changes[r.id] for r in by_key.values()]
    answers = {key(changes[r.id]): _explicit(r) for r in by_key.values()}
    decisions, _ = decide_all(together, policy, explicit=lambda c: answers[key(c)], tags=tags)
    decided = dict(zip(by_key, decisions, strict=True))
    return {r.id: decided[r.key] for r in group}


def _explicit(review: Review) -> Explicit | None:
    """Return what a person had said before the decision stays so under any policy; later answers do not count."""
    if review.rule not in ("selection", "review"):
        return None
    answers: Mapping[str, Explicit] = {"apply": "approved", "ignore": "rejected"}
    return answers.get(review.action)


def _compare(review: Review, decision: Decision) -> SimulatedDecision:
    then = DecisionOutcome(review.action, review.rule, review.why, _text(review.kind, review.action, review.modifiers))
    if _newly_applied(review, decision):
        return SimulatedDecision(review, then, then)
    modifiers = asdict(decision.modifiers)
    now = DecisionOutcome(decision.action, decision.rule, decision.why, _text(review.kind, decision.action, modifiers))
    return SimulatedDecision(review, then, now)


def _newly_applied(review: Review, decision: Decision) -> bool:
    """Return whether what was done then was not the policy's word and would be the same under this one."""
    if review.rule == MASS_REMOVAL:
        return review.kind in REMOVALS
    by_policy = is_by_policy(review.why) or review.why.startswith(DOUBT)
    return review.action != "apply" and not by_policy and decision.applied


def _text(kind: str, action: str, modifiers: Mapping[str, Any]) -> str:
    """Return the action with the modifiers that change what it does to this kind."""
    shown = {name: modifiers[name] for name in _MATTER.get(kind, ()) if name in modifiers}
    if action == "ignore":
        shown = {name: value for name, value in shown.items() if name == "on_invalid_value"}
    return ", ".join([action, *(f"{name}: {value}" for name, value in shown.items() if value != "none")])


_MATTER: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(REMOVALS, ("removed",)),
    "column.added": ("backfill",),
    "column.narrowed": ("on_invalid_value",),
    "column.retyped": ("on_invalid_value", "backfill"),
}
