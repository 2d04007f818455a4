"""What is asked of the queue for a connection, and what becomes of it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from instep.api.wire.base import Asked, Dry, Few, Name, Said, Text


class Work(Asked):
    """`tables`: only these (schema.table); `full`: all rows again; `drop_retained`: lets go of columns that the source
    dropped, where that is needed."""

    tables: Few = Field([])
    full: bool = False
    drop_retained: bool = False
    why: Text = ""


class Look(Asked):
    why: Text = ""


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


class Planning(Asked):
    """`sample`: also what it costs, with type changes tried on so many rows; `all`: how every table is synced, not only
    new ones; `current`: refused if an approval does not count any more."""

    sample: Annotated[int, Field(ge=0, le=100_000)] | None = None
    all: bool = False
    current: bool = False
    why: Text = ""


class Applying(Asked):
    """`plan`: the job that made the plan; `allow`: patterns of what may be dropped."""

    plan: Name
    allow: Few = Field([])
    why: Text = ""


class Undoing(Asked):
    """`what`: a change, run or plan; `preview`: only say what it would do."""

    what: Name
    allow: Few = Field([])
    preview: bool = False
    why: Text = ""


class Filling(Asked):
    """`table` is schema.table by its accepted name; no `columns`: all of it."""

    table: Name
    columns: Few = Field([])
    why: Text = ""


class Pairing(Asked):
    """`old` and `new` (schema.table twice, or schema.table.column twice) are one that was renamed; `preview`: only say
    what that does."""

    old: Name
    new: Name
    preview: bool = False
    why: Text = ""


class Impacting(Asked):
    """`change`: the first characters of its id; none: all that are open or planned. `configured`: the models are those
    that the connection's `downstream` names, with SQL of this `dialect` (none: as it says there), and are judged."""

    change: Text = ""
    configured: bool = False
    dialect: Text = ""
    why: Text = ""


class Leaving(Asked):
    """`table` is schema.table by its accepted name; no `columns`: all that is wanted of it."""

    table: Name
    columns: Few = Field([])


class Comparing(Asked):
    """`tables`: only these (schema.table)."""

    tables: Few = Field([])
    why: Text = ""


class Maintaining(Asked):
    """`table`: only tables (schema.table) of this pattern; `preview`: only say what would be done."""

    table: Text = ""
    preview: bool = False
    why: Text = ""


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
