"""A person's answers to changes, in the store alone.

A person's own switches of what is read of a connection, in the store alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from instep.control import reviews
from instep.control.immediate.context import WriteContext
from instep.control.queries.changes import connections_of
from instep.control.selection.selections import answer_hashed, place_of, switch, switch_steps
from instep.errors import Conflict, InstepError, NotFound
from instep.model import Review
from instep.operations.immediate.decisions import (
    AnswerChangesRequest,
    AssignChangesRequest,
    ChangesRequest,
    ReopenChangeRequest,
    ReopenChangesRequest,
    SnoozeChangeRequest,
    SnoozeChangesRequest,
    SwitchSelectionRequest,
)
from instep.operations.spec import ImmediateRequest, ImmediateWork
from instep.operations.values import EXISTING, Answer, Verb
from instep.store.catalogs.reviews import not_open, over
from instep.store.server.change_pages import ChangeSearch


@dataclass(frozen=True)
class AnsweredChange:
    """A change after it was answered."""

    change: Review
    """The change as it is now."""


def _known(context: WriteContext, change: str) -> Review:
    """Return the change with this whole id; NotFound if there is none, or it is hidden."""
    return context.owned("change", change, context.store.reviews.get)


class _Answering(ImmediateWork):
    """Give one change an answer."""

    answer: ClassVar[Answer]

    def execute(self, context: WriteContext, request: Any, prepared: None) -> AnsweredChange:
        """Answer it; Conflict if it was applied or is obsolete."""
        [done] = reviews.answer(context.store, [_known(context, request.change)], self.answer, context.who)
        return AnsweredChange(done)

    def detail(self, request: ImmediateRequest, result: AnsweredChange) -> Mapping[str, Any]:
        """Return the connection, and the change in words."""
        return {"connection": result.change.connection, "summary": result.change.summary}


class Approval(_Answering):
    """Approve one change."""

    answer = "approved"


class Rejection(_Answering):
    """Reject one change."""

    answer = "rejected"


class Ignoring(_Answering):
    """Reject one change, and tell nobody of it again."""

    answer = "ignored"


class Snoozing(ImmediateWork):
    """Leave one open change alone for a while."""

    def execute(self, context: WriteContext, request: SnoozeChangeRequest, prepared: None) -> AnsweredChange:
        """Snooze it; InstepError for a time that is none or not ahead, Conflict for a change that is not open."""
        review = _known(context, request.change)
        until = reviews.until(request.duration, request.until, context.store.api_keys.now())
        [done] = reviews.snooze(context.store, [review], until, context.who)
        return AnsweredChange(done)

    def detail(self, request: SnoozeChangeRequest, result: AnsweredChange) -> Mapping[str, Any]:
        """Return the end of the snooze."""
        until = result.change.snoozed_until
        assert until is not None, "it is asleep"
        return {"until": until.isoformat()}


class Reopening(ImmediateWork):
    """Take back the answer to one change, or its snooze."""

    def execute(self, context: WriteContext, request: ReopenChangeRequest, prepared: None) -> AnsweredChange:
        """Open it; Conflict if it was applied or is obsolete."""
        [done] = reviews.reopen(context.store, [_known(context, request.change)], context.who)
        return AnsweredChange(done)

    def detail(self, request: ReopenChangeRequest, result: AnsweredChange) -> Mapping[str, Any]:
        """Return the connection, and the change in words."""
        return {"connection": result.change.connection, "summary": result.change.summary}


@dataclass(frozen=True)
class ChangeAnswer:
    """Result of the answer to one change."""

    id: str
    """The change."""
    ok: bool
    """True if it was answered."""
    summary: str
    """The change in words."""
    problem: str = ""
    """Reason why it was not answered."""
    change: Review | None = None
    """The change with its answer; null if it was not answered."""


@dataclass(frozen=True)
class ChangeAnswers:
    """Result of one answer to many changes."""

    answered: int
    """Number of changes that were answered."""
    refused: int
    """Number of changes that were refused."""
    items: tuple[ChangeAnswer, ...]
    """Result of each change."""

    @classmethod
    def of(cls, items: Sequence[ChangeAnswer]) -> ChangeAnswers:
        """Return the answers with their numbers."""
        refused = sum(not item.ok for item in items)
        return cls(len(items) - refused, refused, tuple(items))


MOST = 10_000
"""Changes that one request may answer."""


class _BulkWork(ImmediateWork):
    """Do the same to many changes, each with a result of its own."""

    recorded: tuple[str, ...] = ()
    """Fields of the request that the audit entry has."""

    def prepare(self, context: WriteContext, request: Any) -> Sequence[Review]:
        """Find the changes: matching the names of all open ones would hold up all writers of the store."""
        return _chosen(context, request)

    def execute(self, context: WriteContext, request: Any, prepared: Sequence[Review] | None) -> ChangeAnswers:
        """Answer the changes that were found, as they are by now."""
        chosen = _chosen(context, request) if prepared is None else _as_they_are(context, prepared, request)
        return self.answer(context, request, chosen)

    def answer(self, context: WriteContext, request: Any, chosen: Sequence[Review]) -> ChangeAnswers:
        """Answer each change."""
        raise NotImplementedError

    def refusal(self, result: ChangeAnswers) -> InstepError | None:
        """Return a Conflict about the first change that was not answered."""
        problem = next((item.problem for item in result.items if not item.ok), "")
        return Conflict(problem, hint="see `instep changes list`") if problem else None

    def detail(self, request: Any, result: ChangeAnswers) -> Mapping[str, Any]:
        """Return the request and the ids of the answered changes."""
        recorded = {name: getattr(request, name) for name in self.recorded}
        return {**recorded, "changes": [item.id for item in result.items if item.ok]}


class AnsweringMany(_BulkWork):
    """Give many changes one answer."""

    recorded = ("answer", "hash")

    def prepare(self, context: WriteContext, request: AnswerChangesRequest) -> Sequence[Review]:
        """Find the changes; InstepError for hashes of what is not approved."""
        if request.hash and request.answer != "approved":
            raise InstepError("`hash` is only for the answer `approved`", hint="leave it out")
        return super().prepare(context, request)

    def answer(self, context: WriteContext, request: AnswerChangesRequest, chosen: Sequence[Review]) -> ChangeAnswers:
        """Answer those that can be answered; with `hash` all of them, or none."""
        if request.hash:
            done = answer_hashed(context.project, context.store, chosen, "approved", context.who)
            return ChangeAnswers.of([ChangeAnswer(one.id, True, one.summary, change=one) for one in done])
        able = [one for one in chosen if one.status in EXISTING]
        return _answers(chosen, reviews.answer(context.store, able, request.answer, context.who), over)


class SnoozingMany(_BulkWork):
    """Leave many open changes alone for a while."""

    recorded = ("duration", "until")

    def answer(self, context: WriteContext, request: SnoozeChangesRequest, chosen: Sequence[Review]) -> ChangeAnswers:
        """Snooze those that are open; InstepError for a time that is none or not ahead."""
        until = reviews.until(request.duration, request.until, context.store.api_keys.now())
        able = [one for one in chosen if one.status == "open"]
        return _answers(chosen, reviews.snooze(context.store, able, until, context.who), not_open)


class ReopeningMany(_BulkWork):
    """Take back the answers to many changes, or their snoozes."""

    def answer(self, context: WriteContext, request: ReopenChangesRequest, chosen: Sequence[Review]) -> ChangeAnswers:
        """Open those that stand."""
        able = [one for one in chosen if one.status in EXISTING]
        return _answers(chosen, reviews.reopen(context.store, able, context.who), over)


class AssigningMany(_BulkWork):
    """Assign many changes to a person."""

    recorded = ("assignee",)

    def answer(self, context: WriteContext, request: AssignChangesRequest, chosen: Sequence[Review]) -> ChangeAnswers:
        """Assign all of them, whatever their state."""
        return _answers(chosen, context.store.reviews.assign_many([one.id for one in chosen], request.assignee), over)


def _chosen(context: WriteContext, request: ChangesRequest) -> list[Review]:
    """Return the chosen changes: ids must be known, filters find what the caller may see. Raises InstepError if
    there are none, or more than one request may answer."""
    chosen = _named(context, request.ids)
    filters = reviews.ChangeFilter((), request.connection, request.patterns, request.kinds, request.tables)
    searched = bool(request.view or request.search or request.tag or request.assigned_to)
    if filters.filters or searched:
        search = ChangeSearch(
            connections_of(context, request.connection, request.tag),
            () if request.view else ("open",),
            view=request.view,
            text=request.search,
            assignee=request.assigned_to,
        )
        chosen |= {one.id: one for one in context.store.changes.page(search, limit=None) if filters.fits(one)}
    if not chosen:
        raise reviews.none_found(filters, searched=searched)
    if len(chosen) > MOST:
        raise InstepError(f"{len(chosen):,} changes match, not {MOST:,} or fewer", hint="narrow the filters")
    return list(chosen.values())


def _named(context: WriteContext, ids: Sequence[str]) -> dict[str, Review]:
    """Return the changes with these whole ids; NotFound for one that is not there, or that is hidden."""
    known = {one.id: one for one in context.store.reviews.of_ids(ids) if context.sees(one.connection)}
    for id in ids:
        if id not in known:
            raise NotFound.of("change", id)
    return {id: known[id] for id in ids}


def _as_they_are(context: WriteContext, looked: Sequence[Review], request: ChangesRequest) -> list[Review]:
    """Return the changes as they are now, without those that a filter found and somebody has answered since."""
    now = {one.id: one for one in context.store.reviews.of_ids([one.id for one in looked])}
    named = frozenset(request.ids)
    return [now[one.id] for one in looked if one.id in now and (one.id in named or now[one.id].status == one.status)]


def _answers(chosen: Sequence[Review], done: Sequence[Review], problem: Callable[[Review], str]) -> ChangeAnswers:
    """Return a result for each change that was found; `problem` says why one is not among those that were done."""
    after = {one.id: one for one in done}
    items = [
        ChangeAnswer(one.id, True, one.summary, change=after[one.id])
        if one.id in after
        else ChangeAnswer(one.id, False, one.summary, problem(one))
        for one in chosen
    ]
    return ChangeAnswers.of(items)


_AT_ONCE = 10_000
"""Objects of one request."""


@dataclass(frozen=True)
class SelectionStep:
    """The effect of switching one object."""

    object: str
    """The path of the object."""
    changed: bool
    """False where it is already so."""
    lines: tuple[str, ...] = ()
    """Effects, as lines for people."""


@dataclass(frozen=True)
class SwitchedSelection:
    """Result of a change of the selection."""

    verb: Verb
    """The action that was carried out."""
    objects: tuple[SelectionStep, ...]
    """Each object with its effect."""

    def again(self, connection: str) -> list[SwitchSelectionRequest]:
        """Return the requests that switch just these objects: a pattern may fit others by now."""
        paths = tuple(one.object for one in self.objects)
        parts = [paths[at : at + _AT_ONCE] for at in range(0, len(paths), _AT_ONCE)]
        return [SwitchSelectionRequest(connection, self.verb, part) for part in parts]


class SelectionSwitching(ImmediateWork):
    """Switch objects of one connection."""

    def execute(self, context: WriteContext, request: SwitchSelectionRequest, prepared: None) -> SwitchedSelection:
        """Switch all of them or none; Blocked where the project file says otherwise of one of them."""
        place = place_of(context.project, context.store, request.connection)
        steps = switch_steps(place, request.verb, request.objects, request.matching)
        switch(place, steps, context.who)
        steps_shown = tuple(SelectionStep(step.target.path, not step.same, tuple(step.lines)) for step in steps)
        return SwitchedSelection(request.verb, steps_shown)

    def detail(self, request: SwitchSelectionRequest, result: SwitchedSelection) -> Mapping[str, Any]:
        """Return the request and the objects that it switched."""
        detail = {"verb": request.verb, "objects": request.objects, "matching": request.matching}
        return {**detail, "turned": [one.object for one in result.objects if one.changed]}
