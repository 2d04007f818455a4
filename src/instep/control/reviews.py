"""A person's answers to changes that wait."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

from instep.errors import InstepError
from instep.events import ChangeApproved, ChangeRejected
from instep.model import Review
from instep.store.store import Store

Answer = Literal["approved", "rejected"]


def waiting(store: Store, connection: str | None = None) -> list[Review]:
    """Open changes that need a person; those that policy lets in or has listed as switched off do not."""
    return [r for r in store.reviews.find(connection, ("open",)) if r.action not in ("apply", "ignore")]


def find(store: Store, ids: Sequence[str], connection: str | None, patterns: Sequence[str]) -> list[Review]:
    """The changes with these ids, and the open ones whose kind or table.column fits a pattern."""
    found = {r.id: r for r in map(store.reviews.get, ids)}
    for review in store.reviews.find(connection, ("open",)) if patterns else ():
        path = ".".join(filter(None, (*review.table, review.column)))
        if any(fnmatchcase(path, p) or fnmatchcase(review.kind, p) for p in patterns):
            found[review.id] = review
    if not found:
        raise InstepError("no change was named", hint="give ids from `instep changes list`, or --match PATTERN")
    return list(found.values())


def answer(store: Store, reviews: Sequence[Review], status: Answer, who: str) -> list[Review]:
    """Records the answers in one transaction; the next plan, apply or sync acts on them."""
    kind = ChangeApproved if status == "approved" else ChangeRejected
    with store.transaction():
        done = [store.reviews.decide(r.id, status, who) for r in reviews]
        for review in done:
            store.events.add(kind(review.connection, review.id, who))
    return done
