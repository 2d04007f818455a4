"""Rollouts: one change, policy or selection over many connections. Workers carry them on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import Field
from starlette.responses import Response

from instep.control.rollouts import flow, queued
from instep.control.rollouts.changes import change_patch
from instep.control.rollouts.create import RolloutOrder, create, draft, patch_of
from instep.control.rollouts.gates import gates
from instep.control.rollouts.patch import Patch
from instep.control.rollouts.policies import ServedPolicies, policy_patch
from instep.control.rollouts.selections import SelectionPatch
from instep.control.rollouts.waves import SIZES, ConnectionGroup, chosen, sizes
from instep.control.selection.selections import Verb
from instep.errors import InstepError
from instep.model import Fit, Job, MemberStatus, Rollout, RolloutStatus
from instep.server.access import CallerDep, ServerDep
from instep.server.context import Caller, ServerContext
from instep.server.models import DryRunResult, Name, Page, RequestModel, ResponseModel, Text
from instep.server.paging import Cursor, Limit, paged, place
from instep.server.problems import unknown
from instep.server.responses import REHEARSED, name, router
from instep.server.writes import Matched, Write, WriteAnswer, Writes, tagged
from instep.store.work.rollouts import RolloutDraft

Some = Annotated[tuple[Name, ...], Field(max_length=100)]
Path = Annotated[str, Field(min_length=1, max_length=1000)]


class RolloutOut(ResponseModel):
    """`what`, `group`, `sizes` and `gates` are as they were asked for; `wave` is the last that has begun, 0 before the
    first, `of` how many there are; `why` is what stopped or halted it, `owner` the process that is at it."""

    id: str
    what: dict[str, Any]
    group: dict[str, Any]
    sizes: list[str]
    gates: dict[str, Any]
    status: RolloutStatus
    wave: int
    of: int
    who: str
    created: datetime
    updated: datetime
    why: str
    owner: str


class WaveOut(ResponseModel):
    wave: int
    counts: dict[MemberStatus, int]


class RolloutWithWaves(RolloutOut):
    """`text` says what is rolled out, `counts` how many connections have each status, `job` is the work that carries it
    on, null while none does."""

    text: str
    counts: dict[MemberStatus, int]
    waves: list[WaveOut]
    job: str | None


class MemberOut(ResponseModel):
    """A connection of a rollout. `fit` and `why` are its line of the compatibility table; `wave` is 0 for one that
    needs none; `findings` are of the health gates, `accepted` is why they were let pass."""

    connection: str
    wave: int
    status: MemberStatus
    fit: Fit
    why: str
    attempt: int
    run: str
    error: str
    findings: list[str]
    accepted: str
    who: str
    started: datetime | None
    ended: datetime | None


class ConnectionGroupBody(RequestModel):
    """Of one sort any fits, of different sorts all must."""

    connections: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    destinations: Some = ()
    tags: Some = ()
    matching: Some = ()


class Turn(RequestModel):
    verb: Verb
    object: Path


class NewChange(RequestModel):
    """`change`: its id (c-...), or KIND:OBJECT such as column.added:public.order.note."""

    change: Path
    verdict: Literal["approved", "rejected"]


class NewRollout(RequestModel):
    """One of `selection`, `change` and `preset`. `sizes` of waves: numbers, or shares such as 10%. `gates`: as
    failed=10%, quarantined=0.5%, nulls=3, rows=30%, NAME=off. `canary`: connections that come first."""

    group: ConnectionGroupBody
    selection: Annotated[tuple[Turn, ...], Field(max_length=100)] = ()
    change: NewChange | None = None
    preset: Name | None = None
    sizes: Annotated[tuple[Name, ...], Field(max_length=100)] = SIZES
    gates: Annotated[tuple[Name, ...], Field(max_length=10)] = ()
    canary: Some = ()


class Drafted(DryRunResult):
    """`fits` counts the lines of the compatibility table, `connections` are its lines."""

    rollout: RolloutWithWaves
    fits: dict[Fit, int]
    connections: list[MemberOut]


class Moved(DryRunResult):
    rollout: RolloutWithWaves


class RolloutJob(Moved):
    """`job` carries it on; `fresh` false: it was there before this request."""

    job: str
    fresh: bool


class Advance(RequestModel):
    """`every`: wave after wave, as long as the gates let it."""

    every: bool = False


class Resume(Advance):
    """`accept`: why what the gates have found may pass."""

    accept: Text = ""


class StopRollout(RequestModel):
    reason: Text = ""


class Skip(RequestModel):
    connections: Annotated[list[Name], Field(min_length=1, max_length=1000)]
    reason: Annotated[str, Field(min_length=1, max_length=1000)]


class RollBack(RequestModel):
    """`wave` 0 is the last that has begun; `connections`: only these."""

    wave: Annotated[int, Field(ge=0, le=10_000)] = 0
    connections: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()


routes = router("rollouts")
RolloutId = Annotated[str, name("A rollout's id, w-...")]
_MADE: dict[int | str, dict[str, Any]] = {200: {"model": Drafted, "description": REHEARSED}}
_CARRIED: dict[int | str, dict[str, Any]] = {
    200: {"model": RolloutJob, "description": f"It was under way before this request. {REHEARSED}"},
    202: {"model": RolloutJob, "description": "A worker carries it on."},
}


@routes.get("/rollouts", response_model=Page[RolloutOut])
def list_rollouts(
    who: CallerDep,
    the: ServerDep,
    limit: Limit = 100,
    cursor: Cursor = None,
    status: Annotated[tuple[RolloutStatus, ...], Query(max_length=6)] = (),
) -> Any:
    """Newest first."""
    behind = place(cursor, str)
    found = the.store.rollouts.find(status, limit + 1, behind[0] if behind else "", the.names(who))
    return paged(found, limit, lambda one: (one.id,), RolloutOut.model_validate)


@routes.get("/rollouts/{rollout}", response_model=RolloutWithWaves)
def get_rollout(request: Request, who: CallerDep, the: ServerDep, rollout: RolloutId) -> Response:
    """How far it is, wave by wave."""
    return tagged(request, _document(the, _known(the, who, rollout)))


@routes.get("/rollouts/{rollout}/connections", response_model=Page[MemberOut])
def list_rollout_connections(
    who: CallerDep,
    the: ServerDep,
    rollout: RolloutId,
    limit: Limit = 100,
    cursor: Cursor = None,
    status: Annotated[tuple[MemberStatus, ...], Query(max_length=8)] = (),
) -> Any:
    """By wave and name; those that failed or do not fit say why."""
    behind = place(cursor, int, str)
    found = the.store.rollouts.members(
        _known(the, who, rollout).id, statuses=status, after=(behind[0], behind[1]) if behind else None, limit=limit + 1
    )
    return paged(found, limit, lambda one: (one.wave, one.connection), MemberOut.model_validate)


@routes.post("/rollouts", status_code=201, response_model=Drafted, responses=_MADE)
def create_rollout(the: ServerDep, who: CallerDep, asked: NewRollout, writes: Writes) -> Response:
    """Touches no connection. With `dry_run` only the compatibility table: how it fits each, as of what is known of
    their sources."""

    # Outside of the transaction: looking at all connections would hold up all writers of the store. What moves after
    # this look is no matter: a wave looks at each of its connections again.
    looked = None if writes.repeated() else _draft(the, who, asked)

    def do() -> WriteAnswer:
        made = create(the.store, drafted := looked or _draft(the, who, asked))
        lines = [MemberOut.model_validate(m).model_dump(mode="json") for m in drafted.members]
        fits = Counter(m.fit for m in drafted.members)
        body = {"rollout": _document(the, made), "fits": fits, "connections": lines}
        return WriteAnswer(body, 201, {"rollout": made.id, "what": made.what, "group": made.group})

    return writes.run("rollout.create", "a new rollout", do)


def _draft(the: ServerContext, who: Caller, asked: NewRollout) -> RolloutDraft:
    said = asked.group
    group = ConnectionGroup(said.connections, said.destinations, said.tags, said.matching)
    for one in group.names:
        the.connection(who, one)
    names = chosen(the.project, group, the.names(who))
    patch = _patch(the, who, asked, names)
    order = RolloutOrder(patch, group, sizes(",".join(asked.sizes)), gates(asked.gates), asked.canary)
    return draft(order, names, who.who)


def _patch(the: ServerContext, who: Caller, asked: NewRollout, names: list[str]) -> Patch:
    if sum((bool(asked.selection), asked.change is not None, asked.preset is not None)) != 1:
        raise InstepError("a rollout carries one thing", hint="send one of selection, change and preset")
    if asked.change is not None:
        sees = partial(the.sees, who)
        return change_patch(the.store, asked.change.verdict, asked.change.change, names, sees)
    if asked.preset is not None:
        return policy_patch(the.project, asked.preset, ServedPolicies(the.app.objects))
    return SelectionPatch(the.project, the.store, tuple((turn.verb, turn.object) for turn in asked.selection))


@routes.post("/rollouts/{rollout}/advance", status_code=202, response_model=RolloutJob, responses=_CARRIED)
def advance_rollout(the: ServerDep, who: CallerDep, rollout: RolloutId, asked: Advance, writes: Matched) -> Response:
    """The next wave, or what is left of one that has begun. 200 with what is under way."""

    def do(found: Rollout) -> tuple[Job, bool]:
        return queued.advance(the.store, found.id, writes.caller.who, every=asked.every)

    return _carried(the, who, rollout, writes, "advance", asked.model_dump(), do)


@routes.post("/rollouts/{rollout}/resume", status_code=202, response_model=RolloutJob, responses=_CARRIED)
def resume_rollout(the: ServerDep, who: CallerDep, rollout: RolloutId, asked: Resume, writes: Matched) -> Response:
    """After a stop or a halt; touches only what is not done."""

    def do(found: Rollout) -> tuple[Job, bool]:
        return queued.resume(the.store, found.id, writes.caller.who, every=asked.every, accept=asked.accept), True

    return _carried(the, who, rollout, writes, "resume", asked.model_dump(), do)


@routes.post("/rollouts/{rollout}/rollback", status_code=202, response_model=RolloutJob, responses=_CARRIED)
def roll_back_rollout(the: ServerDep, who: CallerDep, rollout: RolloutId, asked: RollBack, writes: Matched) -> Response:
    """Takes back what reached a wave, or these connections; then it is stopped."""

    def do(found: Rollout) -> tuple[Job, bool]:
        caller = writes.caller.who
        return queued.roll_back(the.store, found.id, caller, wave=asked.wave, connections=asked.connections), True

    return _carried(the, who, rollout, writes, "rollback", asked.model_dump(), do)


def _carried(
    the: ServerContext,
    who: Caller,
    rollout: str,
    writes: Write,
    verb: str,
    asked: dict[str, Any],
    do: Callable[[Rollout], tuple[Job, bool]],
) -> Response:
    found = _known(the, who, rollout)

    def run() -> WriteAnswer:
        writes.check(_document(the, the.store.rollouts.get(found.id)))
        job, fresh = do(found)
        body = {"rollout": _document(the, the.store.rollouts.get(found.id)), "job": job.id, "fresh": fresh}
        return WriteAnswer(body, 202 if fresh else 200, {"job": job.id, **asked})

    return writes.run(f"rollout.{verb}", found.id, run)


@routes.post("/rollouts/{rollout}/stop", response_model=Moved)
def stop_rollout(the: ServerDep, who: CallerDep, rollout: RolloutId, asked: StopRollout, writes: Matched) -> Response:
    """No connection is begun any more; runs that are under way end."""
    found = _known(the, who, rollout)

    def do() -> WriteAnswer:
        writes.check(_document(the, the.store.rollouts.get(found.id)))
        now = flow.stop(the.store, found.id, writes.caller.who, asked.reason)
        return WriteAnswer({"rollout": _document(the, now)}, detail=asked.model_dump())

    return writes.run("rollout.stop", found.id, do)


@routes.post("/rollouts/{rollout}/skip", response_model=Moved)
def skip_connections(the: ServerDep, who: CallerDep, rollout: RolloutId, asked: Skip, writes: Matched) -> Response:
    """Leaves connections out, all or none; the reason is kept."""
    found = _known(the, who, rollout)

    def do() -> WriteAnswer:
        writes.check(_document(the, the.store.rollouts.get(found.id)))
        flow.skip(the.store, found.id, asked.connections, asked.reason, writes.caller.who)
        return WriteAnswer({"rollout": _document(the, the.store.rollouts.get(found.id))}, detail=asked.model_dump())

    return writes.run("rollout.skip", found.id, do)


def _known(the: ServerContext, who: Caller, rollout: str) -> Rollout:
    """By its whole id."""
    try:
        found = the.store.rollouts.get(rollout)
    except InstepError:
        raise unknown("rollout", rollout) from None
    if found.id != rollout or not _sees(the, who, found):
        raise unknown("rollout", rollout)
    return found


def _sees(the: ServerContext, who: Caller, rollout: Rollout) -> bool:
    """A key that is for some groups sees the rollouts that are of their connections alone."""
    names = the.names(who)
    return names is None or the.store.rollouts.is_within(rollout.id, names)


def _document(the: ServerContext, rollout: Rollout) -> dict[str, Any]:
    every, waves = Counter[MemberStatus](), dict[int, dict[MemberStatus, int]]()
    for (wave, status), number in the.store.rollouts.counts(rollout.id).items():
        every[status] += number
        waves.setdefault(wave, {})[status] = number
    job = queued.under_way(the.store, rollout.id)
    return RolloutWithWaves(
        **{**RolloutOut.model_validate(rollout).model_dump(), "text": _text(the, rollout)},
        counts=every,
        waves=[WaveOut(wave=wave, counts=waves[wave]) for wave in sorted(waves) if wave],
        job=job.id if job else None,
    ).model_dump(mode="json")


def _text(the: ServerContext, rollout: Rollout) -> str:
    return patch_of(rollout.what, the.project, the.store).text
