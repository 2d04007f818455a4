"""What is asked of the queue for a connection, and what becomes of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from instep.api.wire.base import Asked, Dry, Few, Name, Said


class JobOut(Dry):
    """`fresh` false: it was there before this request. `note`: what stands in its way, such as that no worker runs."""

    id: str
    connection: str
    kind: str
    status: str
    fresh: bool
    note: str = ""


class JobDone(JobOut):
    """`result` depends on the kind: of a plan it has `plan`, `lines` for people and `drops` that have to be named."""

    error: str = ""
    run: str = ""
    why: str = ""
    who: str = ""
    created: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    result: dict[str, Any] = Field({})


class Leaving(Asked):
    """`table` is schema.table by its accepted name; no `columns`: all that is wanted of it."""

    table: Name
    columns: Few = Field([])


class EstimateOut(Said):
    """What a backfill takes: `rows` and bytes (`read`) at the source by its statistics (`sure`: it has some), `files`
    of so many and bytes that are written again. `waits`: what holds it up unless a person asks for it. `whole`: why it
    is the whole table (no `columns`) although columns were asked for."""

    table: str
    columns: list[str]
    rows: int
    read: int
    files: int
    of: int
    rewritten: int
    sure: bool
    why_not: str
    waits: str
    whole: str


class BackfillOut(Said):
    """`column` is empty for a whole table; `change` has asked for it, if one did."""

    number: int
    connection: str
    table: list[str]
    column: str
    scope: str
    why: str
    change: str
    status: str
    run: str
    wanted_at: datetime
    ended: datetime | None


class BackfillsLeft(Dry):
    """`jobs` that waited or ran for them are cancelled, too."""

    backfills: list[BackfillOut]
    jobs: list[str]
