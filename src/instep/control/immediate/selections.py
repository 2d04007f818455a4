"""A person's own switches of what is read of a connection, in the store alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instep.control.immediate.context import WriteContext
from instep.control.selection.selections import place_of, switch, switch_steps
from instep.operations.immediate.selections import SwitchSelectionRequest
from instep.operations.kinds import Verb
from instep.operations.spec import ImmediateWork

_AT_ONCE = 10_000
"""Objects of one request."""


@dataclass(frozen=True)
class SelectionStep:
    """The effect of switching one object."""

    object: str
    """The path of the object."""
    changed: bool
    """False where it is already so."""
    lines: tuple[str, ...] = ()
    """Effects, as lines for people."""


@dataclass(frozen=True)
class SwitchedSelection:
    """Result of a change of the selection."""

    verb: Verb
    """The action that was carried out."""
    objects: tuple[SelectionStep, ...]
    """Each object with its effect."""

    def again(self, connection: str) -> list[SwitchSelectionRequest]:
        """Return the requests that switch just these objects: a pattern may fit others by now."""
        paths = tuple(one.object for one in self.objects)
        parts = [paths[at : at + _AT_ONCE] for at in range(0, len(paths), _AT_ONCE)]
        return [SwitchSelectionRequest(connection, self.verb, part) for part in parts]


class SelectionSwitching(ImmediateWork):
    """Switch objects of one connection."""

    def execute(self, context: WriteContext, request: SwitchSelectionRequest, prepared: None) -> SwitchedSelection:
        """Switch all of them or none; Blocked where the project file says otherwise of one of them."""
        place = place_of(context.project, context.store, request.connection)
        steps = switch_steps(place, request.verb, request.objects, request.matching)
        switch(place, steps, context.who)
        steps_shown = tuple(SelectionStep(one.target.path, not one.same, tuple(one.lines)) for one in steps)
        return SwitchedSelection(request.verb, steps_shown)

    def detail(self, request: SwitchSelectionRequest, result: SwitchedSelection) -> Mapping[str, Any]:
        """Return what was requested, and the objects that were switched by it."""
        detail = {"verb": request.verb, "objects": request.objects, "matching": request.matching}
        return {**detail, "turned": [one.object for one in result.objects if one.changed]}
