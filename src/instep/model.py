"""The records of the control plane: frozen, without behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from instep.operations.values import (
    JobStatus,
    MemberStatus,
    ObjectKind,
    ReviewStatus,
    RolloutStatus,
    RunKind,
    RunStatus,
)

StoredKind = ObjectKind | Literal["foreign", "group", "webhook", "user", "noted"]
"""Kinds of stored documents: objects, and those that only the compatible API has."""
Mode = Literal["full_refresh", "append", "upsert", "cdc", "stream"]
Deletes = Literal["soft", "hard", "ignore"]
JobKind = str
"""The name of an operation (`instep.operations`)."""


@dataclass(frozen=True)
class Check:
    """One line of `source test` or `destination test`: what was tried, whether it worked, what to do if not: the
    statement to run, where there is one. What is not `needed` is worth knowing and fails nothing."""

    name: str
    ok: bool
    detail: str = ""
    hint: str = ""
    needed: bool = True


@dataclass(frozen=True)
class LogNames:
    """Names of a connection's log at the source's server."""

    slot: str
    publication: str


@dataclass(frozen=True)
class Pause:
    """Pause of a connection (table = None) or a table, with reason, time and change."""

    reason: str
    since: datetime
    change: str = ""
    table: tuple[str, str] | None = None


@dataclass(frozen=True)
class Run:
    """One sync, detection, apply or backfill of a connection."""

    id: str
    connection: str
    kind: RunKind
    status: RunStatus
    fence: int
    started: datetime
    ended: datetime | None = None
    error: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineUse:
    """Say what reads the rows of a run."""

    name: str
    """`spark` or `local`, as `engine:` in instep.yml."""
    where: str = ""
    """Spark's master or its Connect server."""
    page: str = ""
    """The address of Spark's own page; "" where it has none."""
    large: str = ""
    """Operations on tables that were too large for one process, each as `table: operation`: tasks of Spark did them, or
    with `local` that process part by part. All others were done in the process that made the run."""

    def __str__(self) -> str:
        return f"{self.name} ({self.where})" if self.where else self.name


PATTERN = "pattern"


@dataclass(frozen=True)
class TableRun:
    """The result of one run for one table."""

    run: str
    table: tuple[str, str]
    status: str
    """Result: `done`, `failed`, `paused`, `missing` or `unchanged`."""
    mode: str = ""
    """PATTERN for a pattern of the project file that fits nothing: `table` is its text."""
    read: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    invalid_values: int = 0
    bytes: int = 0
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class AcceptedVersion:
    """One version of an accepted catalog: append-only, with who and why, and the run that made it ("" if unknown)."""

    connection: str
    version: int
    fingerprint: str
    at: datetime
    who: str
    why: str
    major: int = 1
    """Grows with what breaks readers; see schema/changes/version.py."""
    minor: int = 0
    run: str = ""

    @property
    def label(self) -> str:
        """`major.minor`."""
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True)
class Review:
    """A recorded change with its decision. `key` is the change's content key; `id` is a short id for people.
    `source_fingerprint` identifies the source catalog at the time of the decision. `first_seen` and `seen` count
    detections, for confirming removals. `tables_fingerprint` identifies the state of the change's table, at the source
    and as accepted, when the change was last shown or approved; an approval is valid as long as it matches. An open
    change with a `decided_by` was approved before its table changed again. `snoozed_until`: hidden from lists until
    then. `evidence`: what makes a rename without column ids likely (score, lines, counts; never values). `assignee`:
    who it is assigned to, by name.
    """

    id: str
    connection: str
    key: str
    kind: str
    table: tuple[str, str]
    column: str
    summary: str
    change: Mapping[str, Any]
    action: str
    rule: str
    why: str
    status: ReviewStatus
    source_fingerprint: str
    first_seen: datetime
    seen: int = 1
    decided_by: str = ""
    decided_at: datetime | None = None
    modifiers: Mapping[str, Any] = field(default_factory=dict)
    tables_fingerprint: str = ""
    snoozed_until: datetime | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    assignee: str = ""


@dataclass(frozen=True)
class JobSummary:
    """A queued, running or finished job. One job per connection runs at a time, and at most one per (connection, kind,
    key) is queued; `connection` is empty for jobs that concern no connection.

    A job does not start before `due`. `attempt` counts its claims, `attempts` is their limit. `fence` grows with each
    claim; a worker with an older fence can no longer write. `owner` is the worker's id, `lease_until` the end of its
    lease unless extended. `stop` names who asked a running job to stop. `run` is the run that the job created. The
    number of concurrent jobs per `source` is limited. Status `failed`: another attempt would not help; `dead`: all
    attempts are used up."""

    id: str
    connection: str
    kind: JobKind
    status: JobStatus
    due: datetime
    created: datetime
    options: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    key: str = ""
    attempt: int = 0
    attempts: int = 1
    why: str = ""
    who: str = ""
    error: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    lease_until: datetime | None = None
    owner: str = ""
    fence: int = 0
    stop: str = ""
    run: str = ""
    source: str = ""

    @property
    def over(self) -> bool:
        """True if the job neither waits nor runs."""
        return self.status not in ("queued", "running")


@dataclass(frozen=True)
class Job(JobSummary):
    """A job with its result."""

    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Worker:
    """A process that runs jobs."""

    id: str
    host: str
    pid: int
    lanes: int
    started: datetime
    seen: datetime
    """Time of its last heartbeat."""
    stopping: bool = False
    """True if it claims no more jobs."""


@dataclass(frozen=True)
class Scheduled:
    """Schedule of a kind of job of a connection."""

    connection: str
    kind: JobKind
    spec: str
    """Schedule: `every <seconds>` or a cron line, read in `timezone`."""
    timezone: str = "UTC"
    key: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    next_due: datetime | None = None
    """The next time."""
    last_due: datetime | None = None
    """Time for which it came last."""
    source: str = ""


@dataclass(frozen=True)
class DetectorState:
    """State of a connection's scheduled detector: `disabled` is the reason why it disabled itself, "" if it did not;
    `error_at` is the time when an error last triggered it."""

    connection: str
    disabled: str = ""
    disabled_at: datetime | None = None
    error_at: datetime | None = None


Fit = Literal["applies", "already", "conflict", "undecided"]


@dataclass(frozen=True)
class Measure:
    """Rows of a destination's table, and how many have NULL in each column; no columns where nothing was counted."""

    rows: int
    nulls: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TableHealth:
    """Outcome of one run for one table: rows read, values held in quarantine, the table before (None: there was none)
    and after."""

    read: int = 0
    held: int = 0
    before: Measure | None = None
    after: Measure | None = None


@dataclass(frozen=True)
class RunOutcome:
    """The end of a connection's run, with its tables by path. Anything but `done` has an `error`."""

    run: str
    status: str
    error: str = ""
    tables: Mapping[str, TableHealth] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.status == "done"


@dataclass(frozen=True)
class Rollout:
    """One change, policy or selection patch (`what`) for a group of connections, in waves. `wave` is the last that has
    started (0: none), `of` their number. `why` is the reason of a stop or halt. `fence` grows with each process that
    advances the rollout; `owner` is that process, "" if there is none."""

    id: str
    what: Mapping[str, Any]
    group: Mapping[str, Any]
    sizes: tuple[str, ...]
    gates: Mapping[str, Any]
    status: RolloutStatus
    wave: int
    of: int
    who: str
    created: datetime
    updated: datetime
    why: str = ""
    fence: int = 0
    owner: str = ""


@dataclass(frozen=True)
class Member:
    """One connection of a rollout. `fit` and `why` are its line of the compatibility table; `wave` is 0 for what needs
    none. `before` is what takes the patch back; empty until it was applied. `findings`: what the gates found after its
    run, `accepted` the reason for which a person has let them pass."""

    rollout: str
    connection: str
    wave: int
    status: MemberStatus
    fit: Fit
    why: str = ""
    attempt: int = 0
    before: Mapping[str, Any] = field(default_factory=dict)
    run: str = ""
    error: str = ""
    findings: tuple[str, ...] = ()
    accepted: str = ""
    who: str = ""
    started: datetime | None = None
    ended: datetime | None = None
