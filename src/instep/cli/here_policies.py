"""Policies at the project of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

    from instep.bootstrap import App
    from instep.project.policies import PolicySection
    from instep.project.policy_files import SampleCase


class PoliciesHere:
    def __init__(self, app: App) -> None:
        self.app = app

    def shown(self, connection: str) -> dict[str, Any]:
        from instep.control.policies import shown

        return shown(self.app.project, connection).document()

    def explained(self, connection: str, path: str, kind: str, before: str, after: str) -> dict[str, Any]:
        from instep.control.policies import explain
        from instep.control.policy_documents import explained

        return explained(explain(self.app.project, self.app.store, connection, path, kind, before, after))

    def tested(self, connection: str, cases: Sequence[SampleCase]) -> list[dict[str, Any]]:
        from instep.control.policies import run_cases
        from instep.control.policy_documents import tested

        return [tested(one) for one in run_cases(self.app.project, connection, cases)]

    def simulated(self, connection: str, name: str, section: PolicySection, since: datetime | None) -> dict[str, Any]:
        from instep.control.policy_documents import simulated
        from instep.control.simulation import simulate

        return simulated(simulate(self.app.project, self.app.store, connection, name, section, since))

    def connections(self) -> list[str]:
        return list(self.app.project.selected())
