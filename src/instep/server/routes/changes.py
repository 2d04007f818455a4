"""Changes and a person's answers to them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import Field
from starlette.responses import Response

from instep.control import reviews
from instep.control.selection.selections import answer_hashed
from instep.errors import Conflict, InstepError
from instep.model import Review, ReviewStatus
from instep.server.access import CallerDep, ServerDep
from instep.server.context import Caller, ServerContext
from instep.server.models import DryRunResult, Name, NameList, Page, RequestModel, ResponseModel
from instep.server.paging import Cursor, Limit, paged, place
from instep.server.problems import ApiProblem, unknown
from instep.server.responses import name, router
from instep.server.writes import Matched, Write, WriteAnswer, Writes, tagged
from instep.store.server.pages import Only


class ChangeOut(ResponseModel):
    """`table` is schema and name; `change` holds before and after; `rule` and `why` say what decided it."""

    id: str
    connection: str
    kind: str
    table: list[str]
    column: str
    summary: str
    change: dict[str, Any]
    action: str
    rule: str
    why: str
    status: str
    key: str
    source_fingerprint: str
    tables_fingerprint: str
    modifiers: dict[str, Any]
    evidence: dict[str, Any]
    first_seen: datetime
    seen: int
    decided_by: str
    decided_at: datetime | None
    snoozed_until: datetime | None


class AnsweredChange(DryRunResult):
    change: ChangeOut


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


@routes.get("/changes", response_model=Page[ChangeOut])
def list_changes(
    who: CallerDep,
    the: ServerDep,
    limit: Limit = 100,
    cursor: Cursor = None,
    connection: Annotated[str | None, Query(max_length=200)] = None,
    status: Annotated[tuple[ReviewStatus, ...], Query(max_length=5)] = (),
    kind: Annotated[tuple[str, ...], Query(max_length=20)] = (),
) -> Any:
    """Those that were seen last come first."""
    behind = place(cursor, datetime, str)
    only = Only(the.only(who, connection), status, kind)
    found = the.store.pages.reviews(only, (behind[0], behind[1]) if behind else None, limit + 1)
    return paged(found, limit, lambda one: (one.first_seen, one.id), ChangeOut.model_validate)


@routes.get("/changes/{change}", response_model=ChangeOut)
def get_change(request: Request, who: CallerDep, the: ServerDep, change: ChangeId) -> Response:
    return tagged(request, _document(_known(the, who, change)))


def _known(the: ServerContext, who: Caller, change: str) -> Review:
    """By its whole id."""
    try:
        found = the.store.reviews.get(change)
    except InstepError:
        raise unknown("change", change) from None
    if found.id != change or not the.sees(who, found.connection):
        raise unknown("change", change)
    return found


def _document(review: Review) -> dict[str, Any]:
    return ChangeOut.model_validate(review).model_dump(mode="json")


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
    wish = reviews.ChangeFilter((), asked.connection, tuple(asked.patterns), tuple(asked.kinds), tuple(asked.tables))
    fitting = reviews.choose(the.store, wish, the.names(who)) if wish.filters or not named else []
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
