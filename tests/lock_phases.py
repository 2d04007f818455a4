"""An application that wants a table for itself, again and again, in every phase of a sync.

Its statements run while the sync stands still in that phase: one that had to wait for a lock of the sync would never
get it, and fails by a timeout of the server's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import pytest

MOST = 2
"""How often a phase is interrupted."""


@dataclass
class Phases:
    """`act` is what the application does; `met` are the phases that it was done in, and how often."""

    patch: pytest.MonkeyPatch
    act: Callable[[], None]
    met: Counter[str] = field(default_factory=Counter)

    def behind(self, owner: type, *names: str) -> None:
        """Interrupt after each of these methods."""
        for name in names:
            self.patch.setattr(owner, name, self._behind(name, getattr(owner, name)))

    def amid(self, owner: type, name: str) -> None:
        """Interrupt between what this method yields, and at its end."""
        inner = getattr(owner, name)

        @wraps(inner)
        def outer(*given: Any, **more: Any) -> Iterator[Any]:
            for number, one in enumerate(inner(*given, **more)):
                self.interrupt(f"amid {name}" if number == 0 else f"later amid {name}")
                yield one
            self.interrupt(name)

        self.patch.setattr(owner, name, outer)

    def _behind(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(inner)
        def outer(*given: Any, **more: Any) -> Any:
            found = inner(*given, **more)
            self.interrupt(name)
            return found

        return outer

    def interrupt(self, name: str) -> None:
        if self.met[name] < MOST:
            self.met[name] += 1
            self.act()
