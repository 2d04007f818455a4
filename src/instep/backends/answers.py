"""A person's answers to changes, at either backend: all of them are given, or none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from instep.operations.immediate.changes import AnswerChangesRequest, SnoozeChangeRequest
from instep.operations.registry import immediate_for, work_of

if TYPE_CHECKING:
    from instep.backends.protocol import Backend
    from instep.model import Review
    from instep.operations.kinds import Answer
    from instep.operations.spec import ImmediateRequest

_AT_ONCE = 1_000
"""Changes of one request, which are answered with all of their columns."""


def answer_changes(backend: Backend, found: Sequence[Review], answer: Answer, *, hashed: bool = False) -> list[Review]:
    """Answer these changes; return them as they are then. `hashed`: columns that are approved come in as hashes.

    Raises Conflict for one that was answered or superseded meanwhile.
    """
    ids = tuple(review.id for review in found)
    parts = [ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE)]
    requests = [AnswerChangesRequest(answer=answer, hash=hashed, ids=part) for part in parts]
    return [one.change for done in backend.operations.perform_all(requests) for one in done.items]


def snooze_changes(backend: Backend, found: Sequence[Review], end: datetime) -> list[Review]:
    """Leave these open changes alone until then; return them. Raises Conflict if one of them is not open."""
    requests = [SnoozeChangeRequest(change=review.id, until=end.isoformat()) for review in found]
    return [done.change for done in backend.operations.perform_all(requests)]


def raise_refused(requests: Sequence[ImmediateRequest], results: Sequence[Any]) -> None:
    """Raise the error of the first result that tells of something refused."""
    for request, result in zip(requests, results, strict=True):
        refusal = work_of(immediate_for(request))().refusal(result)
        if refusal is not None:
            raise refusal
