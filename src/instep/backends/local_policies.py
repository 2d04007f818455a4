"""Policies at the project of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

    from instep.bootstrap import App
    from instep.project.files.policy_files import SampleCase
    from instep.project.sections.policies import PolicySection


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
