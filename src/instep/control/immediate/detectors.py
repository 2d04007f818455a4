"""Enabling scheduled detection again and changing its options, in the store alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instep.control.detector import option, patch, switch_on
from instep.control.immediate.context import WriteContext
from instep.control.queries.detectors import DetectorDetails, DetectorLookup
from instep.control.resources.resources import merged
from instep.operations.immediate.detectors import EnableDetectorRequest, SetDetectorOptionsRequest
from instep.operations.queries.detectors import GetDetector
from instep.operations.spec import ImmediateWork


@dataclass(frozen=True)
class EnabledDetector:
    """Scheduled detection that is enabled."""

    changed: bool
    """True if it had disabled itself."""
    detector: DetectorDetails
    """Status of scheduled detection."""


@dataclass(frozen=True)
class SetDetector:
    """Scheduled detection with its changed options."""

    connection: str
    """The connection."""
    version: int
    """Version of the connection's settings with the change."""


class DetectorEnabling(ImmediateWork):
    """Enable scheduled detection again."""

    def execute(self, context: WriteContext, request: EnableDetectorRequest, prepared: None) -> EnabledDetector:
        """Enable it; Blocked while the connection is paused."""
        changed = switch_on(context.store, request.connection, context.who)
        return EnabledDetector(changed, DetectorLookup().find(context, GetDetector(request.connection)))

    def detail(self, request: EnableDetectorRequest, result: EnabledDetector) -> Mapping[str, Any]:
        """Return the reason."""
        return {"why": request.why}


class DetectorSetting(ImmediateWork):
    """Change options of scheduled detection."""

    def execute(self, context: WriteContext, request: SetDetectorOptionsRequest, prepared: None) -> SetDetector:
        """Change them in the connection's settings; Conflict for a connection of the project file."""
        of_table = bool(request.table)
        options = {option(name, of_table=of_table): value for name, value in request.values.items()}
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
        before = context.resources.get("connection", request.connection)
        spec = merged(before.spec, patch(before.spec, values, request.table))
        made = context.resources.put(
            "connection",
            request.connection,
            spec,
            who=context.who,
            expected=before.version,
            dry_run=context.rehearsed,  # what is rolled back may be remembered by its version
        )
        return SetDetector(request.connection, made.version)

    def detail(self, request: SetDetectorOptionsRequest, result: SetDetector) -> Mapping[str, Any]:
        """Return the names of the options, and the tables."""
        return {"options": sorted(request.values), "table": request.table, "version": result.version}
