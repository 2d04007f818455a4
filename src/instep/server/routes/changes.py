"""A person's answers to changes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi.encoders import jsonable_encoder
from pydantic import Field
from starlette.responses import Response

from instep.control import reviews
from instep.control.queries.changes import ChangeLookup
from instep.control.selection.selections import answer_hashed
from instep.errors import Conflict
from instep.model import Review
from instep.operations.queries.changes import GetChange
from instep.server.access import CallerDep, ServerDep
from instep.server.context import Caller, ServerContext
from instep.server.models import DryRunResult, Name, NameList, RequestModel, ResponseModel
from instep.server.problems import ApiProblem
from instep.server.query_routes import context_of
from instep.server.responses import name, router
from instep.server.writes import Matched, Write, WriteAnswer, Writes


class AnsweredChange(DryRunResult):
    change: Review


class Snooze(RequestModel):
    """One of both: a duration (`90m`, `4h`, `3d`, `2w`) or a time."""

    duration: Annotated[str | None, Field(max_length=10)] = None
    until: Annotated[str | None, Field(max_length=40)] = None


class Answers(RequestModel):
    """Which changes: by id, or the open ones that fit. Those of different sorts must all fit, of one sort any. `hash`:
    what is approved lets its columns in as salted SHA-256; then all are answered or none."""

    answer: Literal["approved", "rejected", "ignored"]
    hash: bool = False
    ids: Annotated[list[Name], Field(max_length=10_000)] = Field([])
    connection: Name | None = None
    patterns: NameList = Field([])
    kinds: NameList = Field([])
    tables: NameList = Field([])


class Answered(ResponseModel):
    id: str
    ok: bool
    summary: str
    problem: str = ""


class AnsweredAll(DryRunResult):
    answered: int
    refused: int
    items: list[Answered]


routes = router("changes")
ChangeId = Annotated[str, name("A change's id, c-...")]


def _known(the: ServerContext, who: Caller, change: str) -> Review:
    """Return the change with this whole id."""
    return ChangeLookup().find(context_of(the, who), GetChange(change))


def _document(review: Review) -> dict[str, Any]:
    """Return the change as it is read, and as its ETag goes by."""
    document: dict[str, Any] = jsonable_encoder(review)
    return document


@routes.post("/changes/{change}/approve", response_model=AnsweredChange)
def approve(the: ServerDep, who: CallerDep, change: ChangeId, writes: Matched) -> Response:
    """The next plan, apply or sync carries it out."""
    return _answer(the, who, change, writes, "approved")


@routes.post("/changes/{change}/reject", response_model=AnsweredChange)
def reject(the: ServerDep, who: CallerDep, change: ChangeId, writes: Matched) -> Response:
    """It stays out."""
    return _answer(the, who, change, writes, "rejected")


@routes.post("/changes/{change}/ignore", response_model=AnsweredChange)
def ignore(the: ServerDep, who: CallerDep, change: ChangeId, writes: Matched) -> Response:
    """It stays out, and nobody is asked again."""
    return _answer(the, who, change, writes, "ignored")


def _answer(the: ServerContext, who: Caller, change: str, writes: Write, answer: reviews.Answer) -> Response:
    def do() -> WriteAnswer:
        found = _known(the, who, change)
        writes.check(_document(found))
        [done] = reviews.answer(the.store, [found], answer, who.who)
        return WriteAnswer(
            {"change": _document(done)}, detail={"connection": found.connection, "summary": found.summary}
        )

    return writes.run(f"change.{answer}", change, do)


@routes.post("/changes/{change}/snooze", response_model=AnsweredChange)
def snooze(the: ServerDep, who: CallerDep, change: ChangeId, asked: Snooze, writes: Matched) -> Response:
    """It is not listed as waiting before then."""

    def do() -> WriteAnswer:
        found = _known(the, who, change)
        writes.check(_document(found))
        until = reviews.until(asked.duration, asked.until, the.store.api_keys.now())
        [done] = reviews.snooze(the.store, [found], until, who.who)
        return WriteAnswer({"change": _document(done)}, detail={"until": until.isoformat()})

    return writes.run("change.snoozed", change, do)


@routes.post("/changes/answers", response_model=AnsweredAll)
def answer_all(the: ServerDep, who: CallerDep, asked: Answers, writes: Writes) -> Response:
    """One answer to many changes, each with its own result; with `dry_run` a preview."""
    if asked.connection is not None:
        the.connection(who, asked.connection)

    if asked.hash and asked.answer != "approved":
        raise ApiProblem(422, "invalid", "hash goes with the answer approved", "leave it out")

    # Outside of the transaction: matching names of all open changes would hold up all writers of the store.
    looked = None if writes.repeated() else _chosen(the, who, asked)

    def do() -> WriteAnswer:
        found = _as_it_is(the, looked, asked) if looked is not None else _chosen(the, who, asked)
        if asked.hash:
            answer_hashed(the.project, the.store, found, "approved", who.who)
            items = [{"id": one.id, "ok": True, "summary": one.summary, "problem": ""} for one in found]
        else:
            items = [_try(the, who, review, asked.answer) for review in found]
        refused = sum(not item["ok"] for item in items)
        ids = [item["id"] for item in items if item["ok"]]
        body = {"answered": len(ids), "refused": refused, "items": items}
        return WriteAnswer(body, detail={"answer": asked.answer, "hash": asked.hash, "changes": ids})

    return writes.run(f"changes.{asked.answer}", asked.connection or "all connections", do)


def _chosen(the: ServerContext, who: Caller, asked: Answers) -> list[Review]:
    """Those that are meant; ids must be known, patterns find what the key is for."""
    named = {one.id: one for one in (_known(the, who, change) for change in asked.ids)}
    change_filter = reviews.ChangeFilter(
        (), asked.connection, tuple(asked.patterns), tuple(asked.kinds), tuple(asked.tables)
    )
    fitting = reviews.choose(the.store, change_filter, the.names(who)) if change_filter.filters or not named else []
    return list({**named, **{one.id: one for one in fitting}}.values())


def _as_it_is(the: ServerContext, looked: list[Review], asked: Answers) -> list[Review]:
    """These changes as they are by now, without those that a pattern has found and somebody has answered since."""
    ids = [one.id for one in looked]
    now = {one.id: one for at in range(0, len(ids), 500) for one in the.store.reviews.of_ids(ids[at : at + 500])}
    found = [now[one.id] for one in looked if one.id in now]
    return [one for one in found if one.id in asked.ids or one.status == "open"]


def _try(the: ServerContext, who: Caller, review: Review, answer: reviews.Answer) -> dict[str, Any]:
    try:
        reviews.answer(the.store, [review], answer, who.who)
    except Conflict as error:
        return {"id": review.id, "ok": False, "summary": review.summary, "problem": error.message}
    return {"id": review.id, "ok": True, "summary": review.summary, "problem": ""}
