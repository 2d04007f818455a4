"""The interface of a backend: the project of this machine, or a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from datetime import datetime

    from instep.control.detector import DetectorStatus
    from instep.control.reviews import ChangeFilter
    from instep.control.rollouts.waves import ConnectionGroup
    from instep.control.selection.selections import Verb
    from instep.model import Job, JobStatus, Member, Review, Rollout, Worker
    from instep.operations.kinds import Answer
    from instep.operations.spec import ImmediateRequest, Preview, Query, Request
    from instep.project.files.policy_files import SampleCase
    from instep.project.sections.policies import PolicySection
    from instep.schema.changes.counts import Counts
    from instep.store.server.api_keys import ApiKey
    from instep.store.work.rollouts import RolloutDraft
    from instep.sync.schema_changes.answer import AnswerOutlook


class OperationBackend(Protocol):
    def prepare(self, connection: str, request: Request) -> Preview:
        """Find out what an operation does that is shown before it is carried out."""
        ...

    def execute(self, preview: Preview, allow: Sequence[str] = ()) -> Mapping[str, Any]:
        """Carry it out; answers its result."""
        ...

    def run(self, connection: str, request: Request) -> Any:
        """Do what is not shown first; return the record that its specification names."""
        ...

    def perform(self, request: ImmediateRequest) -> Any:
        """Do at once what needs no job; return the record that its specification names."""
        ...

    def perform_all(self, requests: Sequence[ImmediateRequest]) -> list[Any]:
        """Do all of these at once, or none; return their records. Raises the error of what is refused."""
        ...


@dataclass(frozen=True)
class SelectionStep:
    """The effect of switching one object. `changed` is false where it is already so; `lines` are the consequences, for
    people."""

    object: str
    changed: bool
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class SelectionPreview:
    """Switches that were prepared. Only the backend that has prepared them reads `made`."""

    connection: str
    verb: Verb
    objects: Sequence[SelectionStep]
    made: Any = field(default=None, repr=False)


class SelectionBackend(Protocol):
    def switching(
        self, connection: str, verb: Verb, objects: Sequence[str], matching: Sequence[str]
    ) -> SelectionPreview:
        """Preview the switch of objects, named by paths and by patterns of tables and columns."""
        ...

    def switch(self, made: SelectionPreview) -> None:
        """Switch all objects of the preview, or none."""
        ...


@dataclass(frozen=True)
class RolloutRequest:
    """A rollout that is wanted: one of `turns`, `change` (verdict and change) and `preset`. `gates` as a person writes
    them."""

    group: ConnectionGroup
    turns: Sequence[tuple[Verb, str]] = ()
    change: tuple[str, str] | None = None
    preset: str = ""
    sizes: tuple[str, ...] = ()
    gates: Sequence[str] = ()
    canary: tuple[str, ...] = ()


class RolloutBackend(Protocol):
    """Rollouts are named by their ids, or how these begin."""

    def find(self) -> list[Rollout]:
        """Newest first."""
        ...

    def get(self, id: str) -> Rollout: ...

    def text(self, made: Rollout) -> str:
        """Return a sentence on what is rolled out."""
        ...

    def members(self, id: str) -> list[Member]: ...

    def detect(self, wanted: RolloutRequest) -> Mapping[str, str]:
        """Looks at all sources; what went wrong, by connection."""
        ...

    def draft(self, wanted: RolloutRequest) -> tuple[RolloutDraft, str]:
        """The compatibility table, and what is rolled out; touches nothing."""
        ...

    def create(self, wanted: RolloutRequest) -> Rollout: ...

    def advance(self, id: str, *, every: bool) -> Rollout: ...

    def resume(self, id: str, *, every: bool, accept: str) -> Rollout: ...

    def roll_back(self, id: str, *, wave: int, connections: Sequence[str]) -> Rollout: ...

    def stop(self, id: str, reason: str) -> Rollout: ...

    def skip(self, id: str, connections: Sequence[str], reason: str) -> Rollout: ...


class PolicyBackend(Protocol):
    """All answers are documents of `control.policy_documents`."""

    def tested(self, connection: str, cases: Sequence[SampleCase]) -> list[dict[str, Any]]:
        """Parallel to the cases."""
        ...

    def simulated(
        self, connection: str, name: str, section: PolicySection, since: datetime | None
    ) -> dict[str, Any]: ...

    def connections(self) -> list[str]:
        """Return the names of all connections, sorted."""
        ...


class DetectorBackend(Protocol):
    def standing(self, connection: str) -> DetectorStatus: ...

    def enable(self, connection: str) -> bool:
        """False if it had not switched itself off."""
        ...

    def set(self, connection: str, options: Mapping[str, Any], table: str) -> None:
        """Options by their long names, of a table's pattern or ("") of the source as a whole; None takes one away."""
        ...


class NotificationBackend(Protocol):
    def test(self, channel: str) -> int:
        """Sends a test message at once; the receiver's answer, 0 where the channel has none."""
        ...


Ref = tuple[str, str]


@dataclass(frozen=True)
class Detected:
    """`pending`: something waits for a person, or for the next plan. `missing`: errors of patterns of `include` that no
    table fits; `others`: there are tables beside them."""

    reviews: tuple[Review, ...]
    counts: Counts
    pending: bool
    missing: Sequence[str] = ()
    others: bool = True


@dataclass(frozen=True)
class ChangeDetails:
    """A change with what was looked up about it: what shares a new key, source values that do not fit the accepted
    type, values of the destination that do not fit the new one."""

    review: Review
    keys: Sequence[str] = ()
    held: Sequence[Mapping[str, Any]] = ()
    lossy: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Queue:
    """Jobs, newest first, without what they have answered; how many there are of each status; who works."""

    jobs: Sequence[Job]
    counts: Mapping[JobStatus, int]
    workers: Sequence[Worker]


@dataclass(frozen=True)
class Keys:
    """`now`: the clock that their ends go by."""

    keys: Sequence[ApiKey]
    now: datetime


@dataclass(frozen=True)
class QuarantineEntries:
    """`entries` as documents, oldest first within a table; `unreadable` files."""

    entries: Sequence[dict[str, Any]] = field(repr=False)
    unreadable: Sequence[str] = ()


class Backend(Protocol):
    """Use it in a `with` block. Errors are InstepErrors, of the same kinds and texts on both sides."""

    @property
    def folder(self) -> Path:
        """The folder of lock files: the project's, or the one that the command runs in."""
        ...

    @property
    def operations(self) -> OperationBackend: ...

    @property
    def selections(self) -> SelectionBackend: ...

    @property
    def rollouts(self) -> RolloutBackend: ...

    @property
    def policies(self) -> PolicyBackend: ...

    @property
    def detectors(self) -> DetectorBackend: ...

    @property
    def notices(self) -> NotificationBackend: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def connection(self, name: str | None) -> str:
        """The named connection, or the only one."""
        ...

    def owner(self, what: str, connection: str | None) -> tuple[str, str]:
        """Return the id of a change, a run or a plan as an undo takes it, and its connection or the one named."""
        ...

    def has_connection(self, name: str) -> bool: ...

    def tables(self, connection: str) -> Mapping[str, Ref]:
        """The accepted tables by what people call them."""
        ...

    def status(self) -> list[dict[str, Any]]: ...

    def detect(self, connection: str) -> Detected: ...

    def changes(self, connection: str | None, *, every: bool) -> list[Review]:
        """Return the changes that wait, or every one, newest first."""
        ...

    def change(self, id: str, sample: int) -> ChangeDetails: ...

    def choose(self, change_filter: ChangeFilter) -> list[Review]: ...

    def outlook(self, connection: str, found: list[Review], answer: Answer | None) -> AnswerOutlook:
        """Return what an answer leads to. `answer` None: the changes stay open."""
        ...

    def query(self, query: Query) -> Any:
        """Return the one answer of a query. Raises NotFound for an object that is not there."""
        ...

    def items(self, query: Query, limit: int) -> list[Any]:
        """Return at most `limit` items of the list that a query asks for."""
        ...

    def held(self, connection: str, table: str | None) -> QuarantineEntries:
        """All entries, settled ones too."""
        ...

    def matches(self, connection: str, table: str, key: Mapping[str, str | None]) -> list[str]:
        """Return the ids of what is held of the rows with this key (texts by column), settled entries too. The key is
        kept nowhere. Raises RunInProgress while a run of the connection is alive, which may hold more of them."""
        ...

    def queue(self, statuses: Sequence[JobStatus], connection: str | None, limit: int) -> Queue: ...

    def keys(self) -> Keys: ...

    def key(self, id: str) -> ApiKey: ...
