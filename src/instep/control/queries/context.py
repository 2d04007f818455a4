"""The context of a query: the project and its store, as far as the asker may see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from instep.control.resources.resources import Resources
from instep.errors import InstepError, NotFound
from instep.project.project import Project
from instep.store.server.api_keys import ApiKey
from instep.store.store import Store


class Owned(Protocol):
    """An object on record that belongs to a connection."""

    @property
    def id(self) -> str:
        """The whole id."""
        ...

    @property
    def connection(self) -> str:
        """The name of the connection."""
        ...


T = TypeVar("T", bound=Owned)


def _closed(connection: str) -> Any:
    raise LookupError(f"nothing opens connection {connection} here")


@dataclass(frozen=True)
class QueryContext:
    """The project, its store, and the connections that the asker may see."""

    project: Project
    open_store: Callable[[], Store]
    """Return the store; one that is not there yet is made by it."""
    scope: frozenset[str] | None = None
    """The names of these connections; None for all, also those that are not in the project any more."""
    sees: Callable[[str], bool] = lambda _: True
    """True if the asker may see a connection."""
    key: ApiKey | None = None
    """The asker's API key; None at the project."""
    open_connection: Callable[[str], Any] = _closed
    """Return what reads the metadata of a connection's ends, as `sync.context` has it."""
    log_status: Callable[[str], Mapping[str, Any] | None] = lambda _: None
    """Return the state of the log of a connection's source; None where no source is opened, or no log is followed."""
    tell: Callable[[str], None] = lambda _: None
    """Tell the asker what could not be looked at."""

    @property
    def store(self) -> Store:
        """The project's store, opened once a query needs it."""
        return self.open_store()

    @property
    def resources(self) -> Resources:
        """The managed resources: the file's sections, and those of the server's store."""
        return Resources(self.project, self.store)

    def connection(self, name: str) -> str:
        """Return the name of a connection of the project; NotFound if it is none, or hidden."""
        if name not in self.project.model.connections or not self.sees(name):
            raise NotFound.of("connection", name)
        return name

    def only(self, name: str | None) -> frozenset[str] | None:
        """Return the connections that a list is of: the named one, or all that the asker may see (None: no limit)."""
        return frozenset({self.connection(name)}) if name is not None else self.scope

    def owned(self, kind: str, id: str, get: Callable[[str], T]) -> T:
        """Return what `get` finds by a whole id; NotFound if there is none, or it is a hidden connection's."""
        try:
            record = get(id)
        except InstepError:
            raise NotFound.of(kind, id) from None
        if record.id != id or not self.sees(record.connection):
            raise NotFound.of(kind, id)
        return record
