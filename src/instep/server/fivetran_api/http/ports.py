"""The interface of the router to the rest of the server. Nothing here opens a source: what touches one is a job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from instep.egress.guard import EgressGuard
from instep.model import JobKind
from instep.operations.values import JobStatus
from instep.project.project import Project
from instep.store.store import Store

Role = Literal["viewer", "operator", "approver", "admin"]
Kind = Literal["source", "destination", "connection", "foreign", "group", "webhook", "user", "noted"]
WAIT = 50.0
"""Seconds that a request waits for a job before it says that the job is still going."""


def nothing() -> None:
    """No-op: for a write that stands alone."""


@dataclass(frozen=True)
class ApiCaller:
    """Caller with its API key."""

    name: str
    role: Role
    groups: frozenset[str] = frozenset()
    """The destinations and tags that the key may see; none means all."""
    key: str = ""


class Authenticates(Protocol):
    def caller(self, key: str | None, secret: str) -> ApiCaller | None:
        """Return whose key this is, or whose secret, if `key` is None; None if there is none, or it has ended."""


@dataclass(frozen=True)
class Allowance:
    """`limit` and what `remaining` of it; `retry_after` is 0, or the seconds until the next request may come."""

    limit: int
    remaining: int
    retry_after: int = 0


class RateLimits(Protocol):
    def count_request(self, key: str) -> Allowance:
        """Count a request of this key."""

    def fail(self, address: str) -> int:
        """Count a wrong key from there; 0, or the seconds until the next one may come."""


@dataclass(frozen=True)
class ApiJob:
    """A job, as the API uses it."""

    id: str
    connection: str
    kind: JobKind
    status: JobStatus
    error: str = ""
    due: datetime | None = None
    attempt: int = 1
    """Counts from 1."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Result, once it is done."""
    who: str = ""
    """Person who has asked for it; several if it was asked for again."""


class JobQueue(Protocol):
    def enqueue(
        self,
        connection: str,
        kind: JobKind,
        options: Mapping[str, Any],
        *,
        key: str = "",
        urgent: bool = False,
        who: str,
    ) -> ApiJob:
        """Return a job, or the one that is queued already for (connection, kind, key). `urgent`: a person waits for
        it."""

    def wait(self, job: str, seconds: float) -> ApiJob:
        """Return the job once it has ended, or as it is after so many seconds."""

    def cancel(self, job: str, who: str) -> None: ...

    def unfinished(self, connections: Sequence[str]) -> Mapping[str, Sequence[ApiJob]]:
        """Return the queued and running jobs of these connections, by name."""

    def has_worker(self) -> bool:
        """Return True if a worker is alive that would take a job."""


@dataclass(frozen=True)
class Item:
    """One object: `spec` is its section as instep.yml says it, secrets as references; of a `foreign` connection, for
    whose service there is no source, the request's own fields. `group` and `namespace` are a connection's destination
    and the namespace there. `in_file`: managed by files, and refused to be written."""

    kind: Kind
    name: str
    spec: Mapping[str, Any]
    created: datetime
    created_by: str = ""
    group: str = ""
    namespace: str = ""
    in_file: bool = False
    tags: frozenset[str] = frozenset()


class ApiResources(Protocol):
    """Writes raise Blocked, with the YAML to paste, for what is managed by files, and Conflict for a name in use."""

    def connections(
        self, *, after: str = "", limit: int, group: str = "", namespace: str = "", groups: frozenset[str] = frozenset()
    ) -> Sequence[Item]:
        """Return connections and foreign ones by name, from behind `after` on; of one group, one namespace, these
        groups."""

    def page(self, kind: Kind, *, after: str = "", limit: int) -> Sequence[Item]: ...

    def get(self, kind: Kind, name: str) -> Item | None: ...

    def sources(self, names: Collection[str]) -> Mapping[str, Item]:
        """Return those of these sources that exist, by name."""

    def create(self, kind: Kind, name: str, spec: Mapping[str, Any], who: str, since: Item | None = None) -> Item:
        """Create an object. `since`: the foreign connection, or the group, that it was; it keeps its creator and
        time, and does not count as new."""

    def change(self, kind: Kind, name: str, patch: Mapping[str, Any], who: str) -> Item:
        """Change an object by a JSON merge patch: null removes a key."""

    def delete(self, kind: Kind, name: str, who: str, along: Callable[[], None] = nothing) -> None:
        """Delete an object; `along` is done in the same transaction."""


@dataclass(frozen=True)
class Ports:
    """The parts of the product that the API uses."""

    store: Store
    project: Callable[[str], Project]
    """Answers the project in which a connection of that name stands, as it is now."""
    objects: ApiResources
    jobs: JobQueue
    keys: Authenticates
    egress: Callable[[], EgressGuard]
    """Says where web hooks may be."""
    limits: RateLimits | None = None
    wait: float = WAIT
