"""The write facet of Iceberg: where tasks stage rows, and how rows are loaded, read and changed."""

from __future__ import annotations

from instep.destinations.base import Ref, StagingTarget
from instep.destinations.iceberg.backfill.fill import IcebergFills
from instep.destinations.iceberg.backfill.recovered_values import IcebergPromotes, IcebergRestoredValues
from instep.destinations.iceberg.commit.shard_table import own_data, own_quarantine, staged_schema
from instep.destinations.iceberg.evolve.ddl import pending_fields
from instep.destinations.iceberg.maintain.sample import IcebergSamples
from instep.destinations.iceberg.metadata.files import arrow_schema, iceberg_schema, merge_compression
from instep.destinations.iceberg.metadata.partition import check_loadable, partitioning
from instep.destinations.iceberg.metadata.records import read_pending, read_table
from instep.destinations.iceberg.metadata.shards import shard_key_of
from instep.destinations.iceberg.write.load import load_ours
from instep.destinations.iceberg.write.merge import IcebergMerges
from instep.destinations.iceberg.write.row_edits import IcebergRowEdits
from instep.destinations.shared import with_shard


class IcebergWrite(
    IcebergMerges, IcebergSamples, IcebergRowEdits, IcebergFills, IcebergPromotes, IcebergRestoredValues
):
    """Rows of Iceberg tables."""

    def target(self, ref: Ref) -> StagingTarget:
        """Return where tasks write a table's files."""
        table, metadata = load_ours(self.lake, ref)
        check_loadable(".".join(ref), metadata)
        pending = read_pending(ref, metadata)
        schema = (
            iceberg_schema(pending_fields(pending, metadata)) if pending else staged_schema(table) or table.schema()
        )
        within, by = shard_key_of(metadata["properties"]), None if pending else partitioning(table.metadata)
        types = {c.name: c.type for c in read_table(ref, metadata).columns} if within else {}
        tasks = with_shard(arrow_schema(schema), within)
        place = own_data(table)
        once = "zstd" if pending else merge_compression(place)  # a table's next generation adopts what was to be merged
        return StagingTarget(tasks, place, own_quarantine(table), self.lake.io(), types, by, once)
