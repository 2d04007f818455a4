"""Pause a connection or one of its tables, and resume it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.spec import ImmediateRequest, ImmediateSpec
from instep.operations.values import LeadsTo, Length, Name

TableRef = Annotated[tuple[Annotated[str, Length(0, 200), LeadsTo("name")], ...], Length(2, 2)]
"""Schema and name of an accepted table; the schema is "" where the source has none."""


@dataclass(frozen=True)
class PauseRequest(ImmediateRequest):
    """Pause a connection, or one of its tables, until it is resumed. Pausing twice changes nothing."""

    connection: Name
    """The connection."""
    reason: Annotated[str, Length(1, 500), LeadsTo("reason")]
    """Reason shown in `status`."""
    table: TableRef | None = None
    """Only this table: its schema and its name."""


@dataclass(frozen=True)
class ResumeRequest(ImmediateRequest):
    """Resume a connection, or one of its tables. Refused while the change that paused it is open."""

    connection: Name
    """The connection."""
    table: TableRef | None = None
    """Only this table: its schema and its name."""


SPECS = (
    ImmediateSpec(
        "pause",
        role="operator",
        route="POST /connections/{connection}/pause",
        request=PauseRequest,
        result="instep.control.immediate.pauses:PauseResult",
        work="instep.control.immediate.pauses:Pausing",
        audit="connection.pause",
        target="connection",
        match="connection",
    ),
    ImmediateSpec(
        "resume",
        role="operator",
        route="POST /connections/{connection}/resume",
        request=ResumeRequest,
        result="instep.control.immediate.pauses:PauseResult",
        work="instep.control.immediate.pauses:Resuming",
        audit="connection.resume",
        target="connection",
        match="connection",
    ),
)
