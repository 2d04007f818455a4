"""The lake as one shard has it: shared tables with what is recorded of the shard, and no other tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from instep.destinations.base import Ref
from instep.destinations.iceberg.metadata.catalog import Lake, Metadata
from instep.destinations.iceberg.metadata.shards import ShardKey, projected
from instep.destinations.shared import shard_column

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


@dataclass(frozen=True)
class PartLake(Lake):
    """A lake as one shard sees it."""

    whole: Lake | None = None
    """Opened for both."""
    shard: str = ""
    """The only one that is seen."""

    @property
    def _base(self) -> Lake:
        assert self.whole is not None, "made by `part_of`"
        return self.whole

    @property
    def shard_key(self) -> ShardKey:
        return shard_column(self.config.prefix), self.shard

    @property
    def name(self) -> str:
        return self._base.name

    @property
    def catalog(self) -> Catalog:
        return self._base.catalog

    def exists(self) -> bool:
        return self._base.exists()

    def load(self, ref: Ref) -> Table | None:
        """Load a table; None if the shard does not have it."""
        from instep.destinations.iceberg.commit.shard_table import ShardTable

        table = self._base.load(ref)
        if table is None or projected({"properties": table.properties}, self.shard_key) is None:
            return None
        return ShardTable(table, self.shard_key)

    def metadata(self, refs: Iterable[Ref]) -> dict[Ref, Metadata]:
        projections = {ref: projected(whole, self.shard_key) for ref, whole in self._base.metadata(refs).items()}
        return {ref: whole for ref, whole in projections.items() if whole is not None}


def part_of(lake: Lake, shard: str) -> PartLake:
    return PartLake(lake.config, whole=lake, shard=shard)
