"""What a connector sent between two checkpoints, and several such parts as one segment.

A checkpoint alone is small: many connectors checkpoint after each page or row. So a segment takes the parts of several
checkpoints, as long as that changes nothing but the number of commits. Its state is that of its last checkpoint, so
that a state is never ahead of the rows that were saved with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from instep.sources.connector.table_spool import Declaration, TableSpool

GATHER = 1.0
"""Seconds after its first checkpoint in which a segment takes the parts of later ones."""
_ROWS, _BYTES, _STEPS = 20_000, 8 << 20, 100


@dataclass
class Part:
    """`number` is that of the segment that it becomes, if no other one takes it. `since`: when its first checkpoint
    came, monotonic."""

    number: int
    tables: dict[tuple[str, str], TableSpool] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    state: Mapping[str, Any] | None = field(default=None, repr=False)
    since: float = 0.0

    @property
    def is_empty(self) -> bool:
        return not any(spool.operations for spool in self.tables.values())

    @property
    def left(self) -> float:
        """Seconds until it takes no more; 0 once it has enough."""
        return max(self.since + GATHER - time.monotonic(), 0.0) if self._has_room else 0.0

    @property
    def _has_room(self) -> bool:
        spools = self.tables.values()
        few = sum(s.rows for s in spools) < _ROWS and sum(s.bytes for s in spools) < _BYTES
        return few and all(s.steps < _STEPS for s in spools)

    def takes(self, later: Part) -> bool:
        """True if both make the segment that they would be one after the other. A part that deletes from a table in
        which this one has written is apart: its rows land, and are marked as deleted."""
        return all(ref not in self.tables or self.tables[ref].takes(spool) for ref, spool in later.tables.items()) and (
            not any(spool.is_on_disk for spool in later.tables.values())
        )

    def add(self, later: Part, spool_of: Callable[[Part, Declaration], TableSpool]) -> None:
        """Take the operations of a part that it `takes`. `spool_of` makes a table that this one does not have yet."""
        for spool in later.tables.values():
            if spool.operations:
                spool_of(self, spool.said).absorb(spool)
        self.warnings += later.warnings

    def discard(self) -> None:
        for spool in self.tables.values():
            spool.discard()
