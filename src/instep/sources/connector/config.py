"""What is said about a connector: where it is, what it is given, and how much of the machine it may use."""

from __future__ import annotations

from typing import Literal

from instep.project.sections.sources import ConnectorSourceSection
from instep.schema.selection.selection import patterns

MIB = 1 << 20


class ConnectorConfig(ConnectorSourceSection):
    """A connector's folder (the one with `connector.py`) and what it is given, which may be secret. `name` is that of
    the connection."""

    type: Literal["connector"] = "connector"
    name: str = "connector"

    def is_lenient(self, table: str) -> bool:
        """Return whether invalid values of the table (`name` or `schema.name`) are kept as texts."""
        return any(p.matches(table) for p in patterns(self.keep_invalid_values))
