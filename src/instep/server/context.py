"""The context of a request: the project and its store, the queue, rates, and the caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from instep.control.resources.api_keys import in_scope, links_of_groups
from instep.control.resources.resources import Resources
from instep.project.project import Project
from instep.server.problems import unknown
from instep.server.rates import Listeners, Rates
from instep.store.server.api_keys import ApiKey
from instep.store.store import Store

if TYPE_CHECKING:
    from instep.notify.channel import Channel


class OpenProject(Protocol):
    """An open project, as `bootstrap` gives it."""

    @property
    def project(self) -> Project: ...

    @property
    def store(self) -> Store: ...

    @property
    def objects(self) -> Resources: ...

    def channel(self, name: str) -> Channel: ...

    def sync_context(self, connection: str) -> Any:
        """Return the sync context of a connection, for the work of a query."""
        ...


@dataclass(frozen=True)
class Queued:
    """Work that waits for a worker, or is under way."""

    id: str
    connection: str
    kind: str
    status: str
    fresh: bool = True
    """This request has put it there; else it was there."""
    note: str = ""
    """Reason why it waits; "" if nothing stops it."""


class Enqueues(Protocol):
    """The queue. Both take part in the store's transaction that is open."""

    def enqueue(self, connection: str, kind: str, *, options: Mapping[str, Any], who: str) -> Queued:
        """Queue a job. One of a kind waits or runs per connection: a second request gets the first one's job."""

    def get(self, job: str) -> Queued | None: ...


@dataclass(frozen=True)
class Caller:
    """Whose request it is, as it is written down."""

    key: ApiKey
    token: str = field(default="", repr=False)
    """The token of the page's session that it came by; "" without one."""

    @property
    def who(self) -> str:
        return self.key.who

    @property
    def scoped(self) -> bool:
        return bool(self.key.groups)


@dataclass(frozen=True)
class ServerContext:
    """Everything that routes use."""

    app: OpenProject
    queue: Enqueues
    rates: Rates = field(default_factory=Rates)
    listeners: Listeners = field(default_factory=Listeners)
    poll: float = 1.0
    """The seconds between two looks at the events for those who listen."""
    stream: float = 900.0
    """The longest that one listens before it has to ask again."""
    version: str = ""
    linked: list[str] = field(default_factory=list, repr=False)
    """The tokens of sessions that began by a link at this process."""

    @property
    def store(self) -> Store:
        return self.app.store

    @property
    def project(self) -> Project:
        return self.app.project

    def names(self, caller: Caller) -> frozenset[str] | None:
        """Return the connections that a key is for, None for all; one query, however many there are. A group is a tag,
        or the name of a destination."""
        if not caller.scoped:
            return None
        return frozenset(self.app.objects.names("connection", links_of_groups(caller.key.groups)))

    def sees(self, caller: Caller, connection: str) -> bool:
        """Return True if a key is for a connection; one without groups also sees those that are not in the project
        now."""
        if not caller.scoped:
            return True
        if connection not in self.project.model.connections:
            return False
        tags = self.project.connection(connection).tags
        return in_scope(caller.key.groups, {*tags, self.project.destination_of(connection)})

    def connection(self, caller: Caller, name: str) -> str:
        """Return the name of a connection that is there, and that the key is for; else a Problem."""
        if name not in self.project.model.connections or not self.sees(caller, name):
            raise unknown("connection", name)
        return name

    def only(self, caller: Caller, name: str | None) -> frozenset[str] | None:
        """Return the connections that a list is of: the named one, or all that the key is for."""
        return frozenset({self.connection(caller, name)}) if name is not None else self.names(caller)
