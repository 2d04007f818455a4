"""Selections at a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instep.control.listing import Listed
from instep.control.selections import Verb
from instep.remote.client import Client, part
from instep.remote.desks import Switching, Turned
from instep.remote.records import record


@dataclass(frozen=True)
class SelectionsThere:
    client: Client

    def listed(self, connection: str, *, every: bool) -> tuple[Mapping[str, Any], list[Listed]]:
        found = dict(self.client.get(f"/connections/{part(connection)}/selection", columns=every))
        return found, [record(Listed, one) for one in found.pop("objects")]

    def switching(self, connection: str, verb: Verb, objects: Sequence[str], matching: Sequence[str]) -> Switching:
        asked = {"verb": verb, "objects": list(objects), "matching": list(matching)}
        found = self._ask(connection, asked, dry_run=True)
        return Switching(connection, verb, [record(Turned, one) for one in found["objects"]])

    def switch(self, made: Switching) -> None:
        """What was shown and no more: a pattern may fit other objects by now."""
        asked = {"verb": made.verb, "objects": [one.object for one in made.objects]}
        self._ask(made.connection, asked, dry_run=False)

    def _ask(self, connection: str, asked: Mapping[str, Any], *, dry_run: bool) -> Any:
        return self.client.post(f"/connections/{part(connection)}/selection", asked, dry_run=dry_run)
