"""Selections at the project of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from instep.backends.protocol import SelectionPreview, SelectionStep

if TYPE_CHECKING:
    from datetime import datetime

    from instep.bootstrap import App
    from instep.control.selection.selections import SwitchedConnection
    from instep.operations.kinds import Verb
    from instep.project.files.policy_files import SampleCase
    from instep.project.sections.policies import PolicySection


class LocalSelections:
    def __init__(self, app: App) -> None:
        self.app = app

    def _place(self, connection: str) -> SwitchedConnection:
        from instep.control.selection.selections import place_of

        return place_of(self.app.project, self.app.store, connection)

    def switching(
        self, connection: str, verb: Verb, objects: Sequence[str], matching: Sequence[str]
    ) -> SelectionPreview:
        from instep.control.selection.selections import wanted

        place = self._place(connection)
        turned = wanted(place, verb, objects, matching)
        told = [SelectionStep(step.target.path, not step.same, step.lines) for step in turned]
        return SelectionPreview(connection, verb, told, (place, turned))

    def switch(self, made: SelectionPreview) -> None:
        from instep.bootstrap import user
        from instep.control.selection.selections import switch

        place, turned = made.made
        switch(place, turned, user())


class LocalPolicies:
    def __init__(self, app: App) -> None:
        self.app = app

    def tested(self, connection: str, cases: Sequence[SampleCase]) -> list[dict[str, Any]]:
        from instep.control.policy.policies import run_cases, tested

        return [tested(one) for one in run_cases(self.app.project, connection, cases)]

    def simulated(self, connection: str, name: str, section: PolicySection, since: datetime | None) -> dict[str, Any]:
        from instep.control.policy.policies import simulated
        from instep.control.policy.simulation import simulate

        return simulated(simulate(self.app.project, self.app.store, connection, name, section, since))

    def connections(self) -> list[str]:
        return list(self.app.project.selected())
