"""Pausing and resuming, in the store alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instep.control import pauses
from instep.control.immediate.context import WriteContext
from instep.control.pauses import ActivePause
from instep.errors import Blocked
from instep.operations.immediate.pauses import PauseRequest, ResumeRequest
from instep.operations.spec import ImmediateWork


@dataclass(frozen=True)
class PauseResult:
    """Pauses of a connection after a request."""

    paused: bool
    """True if it is paused; after a resume, true if anything of the connection still is."""
    changed: bool
    """True if this request changed it."""
    pauses: tuple[ActivePause, ...]
    """Pauses of the connection in effect."""


class Pausing(ImmediateWork):
    """Pause a connection or a table."""

    def execute(self, context: WriteContext, request: PauseRequest, prepared: None) -> PauseResult:
        """Pause it, unless a person has paused it already."""
        new = pauses.pause(context.store, request.connection, request.reason, _ref(request.table))
        return PauseResult(True, new, pauses.active(context.store, request.connection))

    def detail(self, request: PauseRequest, result: PauseResult) -> Mapping[str, Any]:
        """Return the reason and the table."""
        return {"reason": request.reason, "table": request.table}


class Resuming(ImmediateWork):
    """Resume a connection or a table."""

    def prepare(self, context: WriteContext, request: ResumeRequest) -> None:
        """Decide anew where an open change holds it up: the policy of today may let the change in."""
        if context.decide_anew is None:
            return
        try:
            pauses.check_resumable(context.store, request.connection, _ref(request.table))
        except Blocked:
            context.decide_anew(request.connection)

    def execute(self, context: WriteContext, request: ResumeRequest, prepared: None) -> PauseResult:
        """End its pauses; Blocked while a change is open that has stopped it."""
        ended = pauses.resume(context.store, request.connection, context.who, _ref(request.table))
        left = pauses.active(context.store, request.connection)
        return PauseResult(bool(left), bool(ended), left)

    def detail(self, request: ResumeRequest, result: PauseResult) -> Mapping[str, Any]:
        """Return the table."""
        return {"table": request.table}


def _ref(table: tuple[str, ...] | None) -> pauses.Ref | None:
    return (table[0], table[1]) if table else None
