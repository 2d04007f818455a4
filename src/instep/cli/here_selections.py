"""Selections at the project of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from instep.remote.desks import Switching, Turned

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.control.listing import Listed
    from instep.control.selections import Place, Verb


class SelectionsHere:
    def __init__(self, app: App) -> None:
        self.app = app

    def _place(self, connection: str) -> Place:
        from instep.control.selections import place_of

        return place_of(self.app.project, self.app.store, connection)

    def listed(self, connection: str, *, every: bool) -> tuple[Mapping[str, Any], list[Listed]]:
        from instep.control.listing import listed, tree

        place = self._place(connection)
        found = listed(place, columns=every)
        return tree(place, found), found

    def switching(self, connection: str, verb: Verb, objects: Sequence[str], matching: Sequence[str]) -> Switching:
        from instep.control.selections import wanted

        place = self._place(connection)
        turned = wanted(place, verb, objects, matching)
        told = [Turned(step.target.path, not step.same, step.lines) for step in turned]
        return Switching(connection, verb, told, (place, turned))

    def switch(self, made: Switching) -> None:
        from instep.bootstrap import user
        from instep.control.selections import switch

        place, turned = made.made
        switch(place, turned, user())
