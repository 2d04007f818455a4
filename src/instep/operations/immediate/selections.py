"""Switch what is read of a connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from instep.operations.kinds import Verb
from instep.operations.spec import ImmediateRequest, ImmediateSpec
from instep.operations.values import LeadsTo, Length, Name

Path = Annotated[str, Length(1, 1000), LeadsTo("name")]


@dataclass(frozen=True)
class SwitchSelectionRequest(ImmediateRequest):
    """Select, deselect, hash or unhash schemas, tables and columns, all or none. The source is not opened. With
    `dry_run` the response shows the effect."""

    connection: Name
    """The connection."""
    verb: Verb
    """The action: on, off, hash or unhash."""
    objects: Annotated[tuple[Path, ...], Length(0, 10_000)] = ()
    """Paths of schemas, tables or columns."""
    matching: Annotated[tuple[Path, ...], Length(0, 1000)] = ()
    """Patterns of tables and columns: globs, or regular expressions after `re:`."""


SPEC = ImmediateSpec(
    "switch_selection",
    role="approver",
    route="POST /connections/{connection}/selection",
    request=SwitchSelectionRequest,
    result="instep.control.immediate.selections:SwitchedSelection",
    work="instep.control.immediate.selections:SelectionSwitching",
    audit="connection.selection",
    target="connection",
    match="selection",
)
