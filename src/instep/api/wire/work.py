"""What is asked of the queue for a connection, and what becomes of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

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
