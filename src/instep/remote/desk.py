"""What commands ask for: answered by the project of this machine, or by a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from instep.control.history import Side, Version
    from instep.control.keys import Issued
    from instep.control.reviews import Answer, Wish
    from instep.control.trail import Trail
    from instep.model import Job, JobStatus, Review, Worker
    from instep.remote.desks import (
        DetectorDesk,
        NoticeDesk,
        OperationDesk,
        PlanDesk,
        PolicyDesk,
        RolloutDesk,
        RowDesk,
        SelectionDesk,
    )
    from instep.schema.counts import Counts
    from instep.schema.table import Catalog
    from instep.store.api_keys import ApiKey
    from instep.store.copies import Copy
    from instep.sync.changes.answer import Outlook

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
class Seen:
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
class SchemaAt:
    version: Version
    catalog: Catalog
    copies: Sequence[Copy] = ()


@dataclass(frozen=True)
class Keys:
    """`now`: the clock that their ends go by."""

    keys: Sequence[ApiKey]
    now: datetime


@dataclass(frozen=True)
class HeldThere:
    """`entries` as documents, oldest first within a table; `unreadable` files."""

    entries: Sequence[dict[str, Any]] = field(repr=False)
    unreadable: Sequence[str] = ()


class Desk(Protocol):
    """Use it in a `with` block. Errors are InstepErrors, of the same kinds and texts on both sides."""

    @property
    def folder(self) -> Path:
        """Where lock files are: the project's, or that of the command."""
        ...

    @property
    def planning(self) -> PlanDesk: ...

    @property
    def rows(self) -> RowDesk: ...

    @property
    def operations(self) -> OperationDesk: ...

    @property
    def selections(self) -> SelectionDesk: ...

    @property
    def rollouts(self) -> RolloutDesk: ...

    @property
    def policies(self) -> PolicyDesk: ...

    @property
    def detectors(self) -> DetectorDesk: ...

    @property
    def notices(self) -> NoticeDesk: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def connection(self, name: str | None) -> str:
        """The named connection, or the only one."""
        ...

    def has_connection(self, name: str) -> bool: ...

    def tables(self, connection: str) -> Mapping[str, Ref]:
        """The accepted tables by what people call them."""
        ...

    def status(self) -> list[dict[str, Any]]: ...

    def detect(self, connection: str) -> Detected: ...

    def changes(self, connection: str | None, *, every: bool) -> list[Review]:
        """Those that wait, or all of them; newest first."""
        ...

    def change(self, id: str, sample: int) -> Seen: ...

    def choose(self, wish: Wish) -> list[Review]: ...

    def outlook(self, connection: str, found: list[Review], answer: Answer | None) -> Outlook:
        """What an answer leads to; None: leaving it open."""
        ...

    def answer(self, found: list[Review], status: Answer, *, hashed: bool) -> list[Review]: ...

    def snooze(self, found: list[Review], end: datetime) -> list[Review]: ...

    def pause(self, connection: str, reason: str, table: Ref | None) -> bool:
        """False if it was paused already."""
        ...

    def resume(self, connection: str, table: Ref | None) -> bool:
        """False if it was not paused."""
        ...

    def events(self, connection: str, limit: int) -> list[dict[str, Any]]: ...

    def runs(self, connection: str, limit: int) -> list[dict[str, Any]]: ...

    def plans(self, connection: str, limit: int) -> list[dict[str, Any]]: ...

    def versions(self, connection: str, limit: int) -> list[dict[str, Any]]: ...

    def trail(self, connection: str, text: str) -> Trail: ...

    def schema(self, connection: str | None, side: Side, at: str | None) -> SchemaAt: ...

    def held(self, connection: str, table: str | None) -> HeldThere:
        """All entries, settled ones too."""
        ...

    def queue(self, statuses: Sequence[JobStatus], connection: str | None, limit: int) -> Queue: ...

    def job(self, id: str) -> Job: ...

    def cancel(self, id: str) -> Job: ...

    def retry(self, id: str) -> Job: ...

    def keys(self) -> Keys: ...

    def key(self, id: str) -> ApiKey: ...

    def create_key(self, name: str, role: str, groups: Sequence[str], days: int | None) -> Issued: ...

    def rotate_key(self, id: str, overlap: timedelta, days: int | None) -> Issued: ...

    def revoke_key(self, id: str) -> ApiKey: ...
