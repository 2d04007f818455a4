"""A folder of Delta tables with one table of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb_world

from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.delta.table_state import DeltaTableState, find
from instep.schema.catalog.catalog import Table
from lake import ORDERS, REF, create


class Warehouse(duckdb_world.Warehouse):
    """Commits get fences that rise."""

    to: Any

    def __init__(self, folder: Path, wanted: Table = ORDERS, **config: Any) -> None:
        self.path = folder / "delta"
        self.to = DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=str(self.path), **config))
        self.fence = 0
        create(self.to, wanted, self.commit("make"))

    def forget(self) -> None:
        """What was read of logs is read again."""
        self.to = DeltaDestination(self.to.config)

    @property
    def held(self) -> DeltaTableState:
        """The table as its log has it."""
        found = find(self.to.warehouse, REF)
        assert found is not None
        return found

    def files(self) -> list[str]:
        """The data files of the newest version."""
        return sorted(self.held.snapshot.files)
