"""The interface of a patch, which a rollout carries: changes, selections and policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from instep.model import Fit, RunOutcome


@dataclass(frozen=True)
class CompatibilityLine:
    """One connection's line of the compatibility table."""

    fit: Fit
    why: str = ""


class RunsUnfinished(Exception):
    """Runs are under way, and whoever carries the rollout on shall not wait for them: it comes again."""


class RunsConnections(Protocol):
    """Runs one connection: in this process, or by a queue. The same call with the same `key` is the same run: it is
    begun once, and asked again it answers what became of it, None while it is under way. A run that a dead process has
    left unfinished is carried out again. No InstepError comes out of them: that is an outcome."""

    @property
    def lanes(self) -> int:
        """Return the most runs that may be under way at a time."""
        ...

    def detect(self, connection: str, key: str) -> RunOutcome | None:
        """Detect and record the source's changes; applies nothing."""
        ...

    def sync(self, connection: str, key: str, *, measured: bool) -> RunOutcome | None:
        """Return one sync. `measured`: NULLs of the destination's columns are counted before and after, too."""
        ...

    def undo(self, connection: str, change: str, key: str) -> RunOutcome | None:
        """Take an applied change back; done, too, if it was taken back before."""
        ...

    def wait(self) -> None:
        """Pass the time while runs are under way; or raises Later."""
        ...


class Patch(Protocol):
    """Looked at, applied and taken back connection by connection; the next sync of a connection carries it out."""

    @property
    def text(self) -> str:
        """Return a short text for people."""
        ...

    def to_dict(self) -> dict[str, Any]: ...

    def line(self, connection: str) -> CompatibilityLine:
        """Return whether it applies to the connection as it stands in the store; nothing is touched."""
        ...

    def apply(self, connection: str, who: str) -> Mapping[str, Any]:
        """Apply the patch within the caller's transaction; return what takes it back."""
        ...

    def undone_by(self, connection: str, before: Mapping[str, Any]) -> str:
        """Return the applied change that has to be undone at the destination before `take_back`; "" if none has."""
        ...

    def take_back(self, connection: str, before: Mapping[str, Any], who: str) -> None:
        """Restore what was chosen before, within the caller's transaction."""
        ...
