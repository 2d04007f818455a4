"""What a connection has chosen to happen to schema changes, whichever of its keys says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from instep.project.models import Connection
from instep.project.policies import PolicySection
from instep.project.words import CHOOSERS


@dataclass(frozen=True)
class Chosen:
    """`name` is that of a policy of the project file, "" for a preset; `path` is where it stands there."""

    name: str
    section: PolicySection | None
    path: tuple[str, ...]


def chosen(connection: str, section: Connection, policies: Mapping[str, PolicySection]) -> Chosen:
    """The policy that a connection names, or the preset that it asks for; None: the default preset."""
    if section.policy in policies:
        return Chosen(section.policy, policies[section.policy], ("policies", section.policy))
    for key in CHOOSERS:
        if said := getattr(section, key):
            return Chosen("", PolicySection(preset=said), ("connections", connection, key))
    return Chosen("", None, ("policies", ""))
