"""Selections at a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from instep.backends.decode import moments, record
from instep.backends.http.client import Client, part
from instep.backends.protocol import SelectionPreview, SelectionStep
from instep.operations.kinds import Verb

if TYPE_CHECKING:
    from instep.project.files.policy_files import SampleCase
    from instep.project.sections.policies import PolicySection
    from instep.project.sections.values import Section


@dataclass(frozen=True)
class RemoteSelections:
    client: Client

    def switching(
        self, connection: str, verb: Verb, objects: Sequence[str], matching: Sequence[str]
    ) -> SelectionPreview:
        asked = {"verb": verb, "objects": list(objects), "matching": list(matching)}
        found = self._ask(connection, asked, dry_run=True)
        return SelectionPreview(connection, verb, [record(SelectionStep, one) for one in found["objects"]])

    def switch(self, made: SelectionPreview) -> None:
        """Switch exactly the objects of the preview: a pattern may fit others by now."""
        asked = {"verb": made.verb, "objects": [one.object for one in made.objects]}
        self._ask(made.connection, asked, dry_run=False)

    def _ask(self, connection: str, asked: Mapping[str, Any], *, dry_run: bool) -> Any:
        return self.client.post(f"/connections/{part(connection)}/selection", asked, dry_run=dry_run)


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
