"""Rollouts as the API says and takes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from instep.api.wire.base import Asked, Dry, Name, Said, Text
from instep.control.rollouts.waves import SIZES
from instep.control.selections import Verb
from instep.model import Fit, MemberStatus, RolloutStatus

Some = Annotated[tuple[Name, ...], Field(max_length=100)]
Path = Annotated[str, Field(min_length=1, max_length=1000)]


class RolloutOut(Said):
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


class WaveOut(Said):
    wave: int
    counts: dict[MemberStatus, int]


class RolloutWithWaves(RolloutOut):
    """`text` says what is rolled out, `counts` how many connections have each status, `job` is the work that carries it
    on, null while none does."""

    text: str
    counts: dict[MemberStatus, int]
    waves: list[WaveOut]
    job: str | None


class MemberOut(Said):
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


class NewGroup(Asked):
    """Of one sort any fits, of different sorts all must."""

    connections: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    destinations: Some = ()
    tags: Some = ()
    matching: Some = ()


class Turn(Asked):
    verb: Verb
    object: Path


class NewChange(Asked):
    """`change`: its id (c-...), or KIND:OBJECT such as column.added:public.order.note."""

    change: Path
    verdict: Literal["approved", "rejected"]


class NewRollout(Asked):
    """One of `selection`, `change` and `preset`. `sizes` of waves: numbers, or shares such as 10%. `gates`: as
    failed=10%, quarantined=0.5%, nulls=3, rows=30%, NAME=off. `canary`: connections that come first."""

    group: NewGroup
    selection: Annotated[tuple[Turn, ...], Field(max_length=100)] = ()
    change: NewChange | None = None
    preset: Name | None = None
    sizes: Annotated[tuple[Name, ...], Field(max_length=100)] = SIZES
    gates: Annotated[tuple[Name, ...], Field(max_length=10)] = ()
    canary: Some = ()


class Drafted(Dry):
    """`fits` counts the lines of the compatibility table, `connections` are its lines."""

    rollout: RolloutWithWaves
    fits: dict[Fit, int]
    connections: list[MemberOut]


class Moved(Dry):
    rollout: RolloutWithWaves


class Carried(Moved):
    """`job` carries it on; `fresh` false: it was there before this request."""

    job: str
    fresh: bool


class Advance(Asked):
    """`every`: wave after wave, as long as the gates let it."""

    every: bool = False


class Resume(Advance):
    """`accept`: why what the gates have found may pass."""

    accept: Text = ""


class StopRollout(Asked):
    reason: Text = ""


class Skip(Asked):
    connections: Annotated[list[Name], Field(min_length=1, max_length=1000)]
    reason: Annotated[str, Field(min_length=1, max_length=1000)]


class RollBack(Asked):
    """`wave` 0 is the last that has begun; `connections`: only these."""

    wave: Annotated[int, Field(ge=0, le=10_000)] = 0
    connections: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
