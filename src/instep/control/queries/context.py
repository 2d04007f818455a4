"""What a query may read: the project and its store, as far as the asker may see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from instep.errors import NotFound
from instep.project.project import Project
from instep.store.store import Store


@dataclass(frozen=True)
class QueryContext:
    """The project, its store, and the connections that the asker may see."""

    project: Project
    open_store: Callable[[], Store]
    """Return the store; one that is not there yet is made by it."""
    scope: frozenset[str] | None = None
    """The names of these connections; None for all, also those that are not in the project any more."""
    sees: Callable[[str], bool] = lambda _: True
    """Whether the asker may see a connection."""

    @property
    def store(self) -> Store:
        """The project's store, opened once a query needs it."""
        return self.open_store()

    def connection(self, name: str) -> str:
        """Return the name of a connection of the project; NotFound if it is none, or hidden."""
        if name not in self.project.model.connections or not self.sees(name):
            raise NotFound.of("connection", name)
        return name

    def only(self, name: str | None) -> frozenset[str] | None:
        """Return the connections that a list is of: the named one, or all that the asker may see (None: no limit)."""
        return frozenset({self.connection(name)}) if name is not None else self.scope
