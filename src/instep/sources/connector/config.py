"""What is said about a connector: where it is, what it is given, and how much of the machine it may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from instep.schema.selection.selection import patterns

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class ConnectorLimits:
    """Limits of one sync of a connector; 0 means no limit.

    `seconds` is the time from start to end without the time that it waited for us, `silence` the time without any
    operation, checkpoint or log line. `memory` (bytes) holds for all its processes together, `file_bytes` for the
    largest file that it writes. `checkpoints` is how often in a row it may save the same state. `ahead` is how many
    segments the child may be ahead of the last one that was acknowledged.
    """

    seconds: float = 6 * 3600.0
    silence: float = 3600.0
    memory: int = 2 * GIB
    file_bytes: int = 4 * GIB
    checkpoints: int = 10_000
    ahead: int = 16


@dataclass(frozen=True)
class ConnectorConfig:
    """A connector's folder (the one with `connector.py`) and what its `configuration` says, which may be secret.

    `name` is that of the connection. `python` is the interpreter of its virtual environment ("": the one that runs
    now), `environments` the folder where environments are kept ("": in the user's cache). `environment` are variables
    that the connector may read beside the few that it always gets. With `sandbox` it runs in a bubblewrap of its own.
    In tables that match one of `keep_invalid_values` a value that does not fit its declared DECIMAL or SHORT is kept as
    text instead of refused.
    """

    path: str
    configuration: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = "connector"
    python: str = ""
    environments: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    sandbox: bool = False
    keep_invalid_values: tuple[str, ...] = ()
    limits: ConnectorLimits = field(default_factory=ConnectorLimits)

    def is_lenient(self, table: str) -> bool:
        """Return whether invalid values of the table (`name` or `schema.name`) are kept as texts."""
        return any(p.matches(table) for p in patterns(self.keep_invalid_values))
