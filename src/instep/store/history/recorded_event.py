"""An event as the store keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from instep.errors import InstepError
from instep.events import Event


@dataclass(frozen=True)
class LoggedEvent:
    """A logged event."""

    number: int
    """Grows with every event and is never reused."""
    connection: str
    at: datetime
    type: str
    data: Mapping[str, Any]

    @property
    def event(self) -> Event:
        """The event as it was logged; InstepError for a type that this version does not know."""
        for kind in _kinds(Event):
            if kind.type == self.type:
                fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in self.data.items()}
                return kind(**fields)
        raise InstepError(f"event {self.number} has the unknown type {self.type}", hint="update instep")


def _kinds(base: type[Event]) -> Iterator[type[Event]]:
    yield base
    for kind in base.__subclasses__():
        yield from _kinds(kind)
