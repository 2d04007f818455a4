"""What the API says and takes, as it stands in openapi.json. Times are ISO 8601 with an offset."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from instep.control.keys import Role

T = TypeVar("T")
Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=1000)]
Few = Annotated[list[Name], Field(max_length=100)]


class Said(BaseModel):
    """What the server says."""

    model_config = ConfigDict(from_attributes=True)


class Asked(BaseModel):
    """What a client asks for: unknown fields are mistakes."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class Page(Said, Generic[T]):
    items: list[T]
    next_cursor: str | None


class ProblemOut(Said):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    docs: str


class Dry(Said):
    """A write that was only rehearsed says so."""

    dry_run: bool = False


class Me(Said):
    id: str
    name: str
    role: Role
    groups: list[str]


class TableRunOut(Said):
    """`ref` is the table's schema and name."""

    table: str
    ref: list[str]
    status: str
    mode: str
    read: int
    inserted: int
    updated: int
    deleted: int
    misfits: int
    bytes: int
    seconds: float
    error: str


class RunOut(Said):
    id: str
    connection: str
    kind: str
    status: str
    fence: int
    started: datetime
    ended: datetime | None
    error: str
    detail: dict[str, Any]


class RunWithTables(RunOut):
    tables: list[TableRunOut]


class ConnectionOut(Said):
    """`status` is paused, running, failing, waiting (for a person), idle, or new (never run)."""

    name: str
    source: str
    destination: str
    namespace: str
    policy: str
    tags: list[str]
    status: Literal["paused", "running", "failing", "waiting", "idle", "new"]
    waiting: int = Field(description="Open changes that wait for a person.")
    last_run: RunOut | None
    managed_by: Literal["file", "server"]


class PauseOut(Said):
    reason: str
    since: datetime
    change: str
    table: str | None


class ConnectionWithPauses(ConnectionOut):
    pauses: list[PauseOut]


class ChangeOut(Said):
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


class Changed(Dry):
    change: ChangeOut


class Snooze(Asked):
    """One of both: a duration (`90m`, `4h`, `3d`, `2w`) or a time."""

    duration: Annotated[str | None, Field(max_length=10)] = None
    until: Annotated[str | None, Field(max_length=40)] = None


class Answers(Asked):
    """Which changes: by id, or the open ones that fit. Those of different sorts must all fit, of one sort any."""

    answer: Literal["approved", "rejected", "ignored"]
    ids: Annotated[list[Name], Field(max_length=10_000)] = []
    connection: Name | None = None
    patterns: Few = []
    kinds: Few = []
    tables: Few = []


class Answered(Said):
    id: str
    ok: bool
    summary: str
    problem: str = ""


class AnsweredAll(Dry):
    answered: int
    refused: int
    items: list[Answered]


class Pausing(Asked):
    reason: Annotated[str, Field(min_length=1, max_length=500)]
    table: Annotated[list[Name], Field(min_length=2, max_length=2)] | None = None


class Resuming(Asked):
    table: Annotated[list[Name], Field(min_length=2, max_length=2)] | None = None


class Paused(Dry):
    """`changed`: this request has done it."""

    paused: bool
    changed: bool
    pauses: list[PauseOut]


class Work(Asked):
    """`tables`: only these (schema.table); `full`: all rows again; `drop_retained`: lets go of columns that the source
    dropped, where that is needed."""

    tables: Few = []
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
    result: dict[str, Any] = {}


class Applying(Asked):
    """`plan`: the job that made the plan; `allow`: patterns of what may be dropped."""

    plan: Name
    allow: Few = []
    why: Text = ""


class Undoing(Asked):
    """`what`: a change, run or plan; `preview`: only say what it would do."""

    what: Name
    allow: Few = []
    preview: bool = False
    why: Text = ""


class Filling(Asked):
    """`table` is schema.table by its accepted name; no `columns`: all of it."""

    table: Name
    columns: Few = []
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


class DetectionOut(Said):
    """One detection. `counts`: new, deleted, updated and unchanged by level, once it has looked."""

    job: str
    status: str
    why: str
    triggered_by_error: bool
    ended: datetime | None
    error: str
    counts: dict[str, dict[str, int]]


class DetectorOut(Said):
    """`frequency` in seconds; `state` processing: a detection runs. `reason` says why it has switched itself off."""

    connection: str
    state: Literal["processing", "queued", "scheduled", "off", "internal_disabled"]
    enabled: bool
    frequency: int
    internal_disabled_detect_schema_changes: bool
    reason: str
    next_due: datetime | None
    current: DetectionOut | None
    last: DetectionOut | None


class Enabled(Dry):
    """`changed` false: it had not switched itself off."""

    changed: bool
    detector: DetectorOut


class EventOut(Said):
    number: int
    connection: str
    at: datetime
    type: str
    data: dict[str, Any]


class StepOut(Said):
    number: int
    step: str
    at_table: str
    kind: str
    text: str
    status: str
    rows: int
    started: datetime | None
    ended: datetime | None
    error: str


class PlanOut(Said):
    id: str
    connection: str
    at: datetime
    status: str
    run: str
    who: str
    version: int
    changes: list[str]
    ended: datetime | None
    error: str
    base_accepted: str
    base_destination: str


class PlanWithSteps(PlanOut):
    plan: dict[str, Any]
    steps: list[StepOut]


class VersionOut(Said):
    """`version` counts on its side; `label` is the accepted version's major.minor at that time."""

    connection: str
    side: Literal["source", "accepted", "destination"]
    version: int
    at: datetime
    accepted: int
    label: str
    run: str
    who: str
    why: str


class Schema(VersionOut):
    catalog: dict[str, Any]


class HeldOut(Said):
    """A held value or row. Originals of hashed and excluded columns are not here."""

    id: str
    table: str
    column: str
    key: Any
    original: Any
    reason: str
    place: str
    change: str
    rule: str
    run: str
    since: Any
    at: Any
    status: str


class HeldPage(Page[HeldOut]):
    unreadable: list[str]


class SecretOut(Said):
    prefix: str
    created: datetime
    expires: datetime | None
    last_used: datetime | None


class KeyOut(Said):
    """`ended`: since when it is refused."""

    id: str
    name: str
    role: Role
    groups: list[str]
    created: datetime
    created_by: str
    ended: datetime | None
    ended_by: str
    secrets: list[SecretOut]


class NewKey(Asked):
    """`groups`: tags of the connections that it is for, none for all; `days`: how long it lasts."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    role: Role
    groups: Few = []
    days: Annotated[int, Field(ge=1, le=3650)] | None = None


class Rotation(Asked):
    """`overlap_hours`: how long the old secret still works."""

    overlap_hours: Annotated[int, Field(ge=0, le=24 * 90)] = 168
    days: Annotated[int, Field(ge=1, le=3650)] | None = None


class IssuedOut(Dry):
    """`secret` is told once; null where nothing was issued or it was told before."""

    key: KeyOut
    secret: str | None


class Revoked(Dry):
    key: KeyOut


class AuditOut(Said):
    number: int
    at: datetime
    actor: str
    action: str
    target: str
    detail: dict[str, Any]
    previous: str
    digest: str


class ChainOut(Said):
    """`broken` is empty if every entry follows the one before it. Note `entries` and `head` elsewhere: entries that
    are taken away at the end show only by them."""

    entries: int
    head: str
    broken: str


class Health(Said):
    status: Literal["ok", "unavailable"]
    version: str = ""
    detail: str = ""
