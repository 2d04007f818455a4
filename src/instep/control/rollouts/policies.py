"""Another preset for the policy of many connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from instep.control.resources.resources import Resources
from instep.control.rollouts.patch import CompatibilityLine
from instep.project.project import Project
from instep.project.sections.policies import CHOOSERS
from instep.schema.policy.presets import preset_named


class ManagedPolicies(Protocol):
    """The policies of connections that no project file manages."""

    def manages(self, connection: str) -> bool: ...

    def policy_values(self, connection: str) -> Mapping[str, Any]:
        """Return the policy keys of the connection's own document, empty for the default."""
        ...

    def put(self, connection: str, values: Mapping[str, Any], who: str) -> None:
        """Set these keys and remove the other keys that choose a policy, within the caller's transaction."""
        ...


@dataclass(frozen=True)
class ServedPolicies:
    """Policies of connections in the server's store; those of the project file are changed there."""

    objects: Resources

    def manages(self, connection: str) -> bool:
        return self.objects.get("connection", connection).by == "server"

    def policy_values(self, connection: str) -> Mapping[str, Any]:
        spec = self.objects.get("connection", connection).spec
        return {key: spec[key] for key in CHOOSERS if key in spec}

    def put(self, connection: str, values: Mapping[str, Any], who: str) -> None:
        """Save the connection's document. Secrets stay: the document comes and goes with stars in their place."""
        spec = self.objects.get("connection", connection).spec
        others = {key: value for key, value in spec.items() if key not in CHOOSERS}
        self.objects.put("connection", connection, {**others, **values}, who=who)


@dataclass(frozen=True)
class PolicyPatch:
    """A preset for the connections of a rollout."""

    project: Project
    preset: str
    """Preset that replaces the connection's policy. A policy with rules or overrides of its own is somebody's
    decision and never replaced; connections of the project file are changed there."""
    managed: ManagedPolicies | None = None

    @property
    def text(self) -> str:
        return f"policy {self.preset}"

    def to_dict(self) -> dict[str, Any]:
        return {"policy": {"preset": self.preset}}

    def line(self, connection: str) -> CompatibilityLine:
        policy = self.project.policy(connection)
        own = bool(policy.rules or policy.overrides)
        if policy.preset == self.preset and not own:
            return CompatibilityLine("already", f"its policy is {self.preset}")
        if self.managed is None or not self.managed.manages(connection):
            where = self.project.location_of(("connections", connection))
            return CompatibilityLine("conflict", f"{where} manages it: write `policy: {self.preset}` there")
        if own:
            name = f"policy {policy.name}" if policy.name else "its policy"
            return CompatibilityLine("undecided", f"{name} has rules of its own: take them out, or skip the connection")
        return CompatibilityLine(
            "applies", f"preset {policy.preset} becomes {self.preset}; open reviews are decided again"
        )

    def apply(self, connection: str, who: str) -> Mapping[str, Any]:
        assert self.managed is not None
        before = dict(self.managed.policy_values(connection))
        self.managed.put(connection, {"policy": self.preset}, who)
        return {"policy": before}

    def undone_by(self, connection: str, before: Mapping[str, Any]) -> str:
        return ""

    def take_back(self, connection: str, before: Mapping[str, Any], who: str) -> None:
        assert self.managed is not None
        self.managed.put(connection, before["policy"], who)


def policy_patch(project: Project, preset: str, managed: ManagedPolicies | None = None) -> PolicyPatch:
    """Return a patch that sets `preset`, by any of its names; raises SchemaError for an unknown name."""
    return PolicyPatch(project, preset_named(preset), managed)
