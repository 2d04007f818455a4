"""Policies at a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from instep.backends.decode import moments
from instep.backends.http.client import Client, part

if TYPE_CHECKING:
    from instep.project.files.policy_files import SampleCase
    from instep.project.sections.policies import PolicySection
    from instep.project.sections.values import Section


_TIMES = frozenset({"first_seen"})


@dataclass(frozen=True)
class RemotePolicies:
    client: Client

    def tested(self, connection: str, cases: Sequence[SampleCase]) -> list[dict[str, Any]]:
        asked = {"cases": [_written(case) for case in cases]}
        return list(self.client.post(f"{_of(connection)}/test", asked)["results"])

    def simulated(self, connection: str, name: str, section: PolicySection, since: datetime | None) -> dict[str, Any]:
        asked = {"name": name, "policy": _written(section), "since": since.isoformat() if since else None}
        found: dict[str, Any] = moments(self.client.post(f"{_of(connection)}/simulation", asked), _TIMES)
        return found

    def connections(self) -> list[str]:
        return [one["name"] for one in self.client.pages("/connections")]


def _of(connection: str) -> str:
    return f"/connections/{part(connection)}/policy"


def _written(section: Section) -> dict[str, Any]:
    """Return a policy's section as a project file has it."""
    return section.model_dump(mode="json", by_alias=True, exclude_unset=True)
