"""Policies at a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from instep.remote.client import Client, part
from instep.remote.records import moments

if TYPE_CHECKING:
    from instep.project.policies import PolicySection
    from instep.project.policy_files import SampleCase
    from instep.project.values import Section

_TIMES = frozenset({"first_seen"})


@dataclass(frozen=True)
class PoliciesThere:
    client: Client

    def shown(self, connection: str) -> dict[str, Any]:
        return dict(self.client.get(_of(connection)))

    def explained(self, connection: str, path: str, kind: str, before: str, after: str) -> dict[str, Any]:
        asked = {"path": path, "kind": kind, "from": before or None, "to": after or None}
        return dict(self.client.get(f"{_of(connection)}/explain", **asked))

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
    """As a file has it."""
    return section.model_dump(mode="json", by_alias=True, exclude_unset=True)
