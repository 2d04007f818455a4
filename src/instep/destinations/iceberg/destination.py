"""The Iceberg destination: a lake of format-2 tables that Spark, DuckDB and pyiceberg read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from instep.destinations.base import (
    CastSample,
    Commit,
    Fill,
    Filled,
    FillSize,
    InvalidValueCount,
    LoadOutcome,
    LoadState,
    Merge,
    Ref,
    RowLookup,
    RowUpdate,
    StagingTarget,
    TableSize,
    UndropReport,
)
from instep.destinations.facets import Layout, Maintained, Savepoint, Upkeep
from instep.destinations.iceberg.commit.shard_lake import part_of
from instep.destinations.iceberg.evolve import views as iceberg_views
from instep.destinations.iceberg.metadata.catalog import IcebergConfig, Lake
from instep.destinations.iceberg.metadata.layout import guards
from instep.destinations.iceberg.metadata.partition import check_loadable, fault
from instep.destinations.iceberg.metadata.records import (
    FENCE,
    Metadata,
    is_copy,
    is_ours,
    load_state,
    not_ours,
    ours,
    read_pending,
    read_table,
    table_size,
)
from instep.destinations.iceberg.metadata.shards import part_table, projected, shape_of, shards_of, within_of
from instep.destinations.iceberg.metadata.table_layout import layout_of, property_fault
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.destinations.shared import ShardStatus, SharedTable, is_shared, shard_column, with_shard
from instep.destinations.types import ICEBERG_PROMOTIONS
from instep.model import Check
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.layout import TableLayout
from instep.schema.catalog.partition import PartitionTerm
from instep.schema.catalog.types import DataType
from instep.schema.maintenance import Maintenance
from instep.schema.planning.aliases import View
from instep.schema.planning.guard import Guards
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.plan import Step
from instep.stage.files.place import StorageFolder
from instep.stage.spec import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CAPABILITIES", "IcebergConfig", "IcebergDestination"]

CAPABILITIES = Capabilities(
    name="iceberg",
    promotes=ICEBERG_PROMOTIONS,
    nested=True,
    case_sensitive=False,
    transactional_ddl=True,
    undo_by_id=True,
    simultaneous_renames=True,
    comments=True,
    keys=True,
    max_name_bytes=255,
    merges_asked=True,
)


class IcebergDestination:
    """See `destinations.base.Destination`. pyiceberg is imported where a table is written or read, not to inspect."""

    kind, shares_layouts = "iceberg", True

    def __init__(self, config: IcebergConfig, lake: Lake | None = None) -> None:
        """`lake`: as one shard has it."""
        self.config = config
        self.lake = lake or Lake(config)
        self.capabilities = replace(CAPABILITIES, views=self.lake.holds_views)
        self._read: dict[Ref, tuple[Metadata, Table]] = {}

    def check_writable(self) -> None:
        self.lake.check_writable()

    def part(self, shard: str) -> IcebergDestination:
        return IcebergDestination(self.config, part_of(self.lake, shard))

    def whole(self, ref: Ref) -> SharedTable | None:
        metadata = self.lake.metadata([ref]).get(ref)
        if metadata is None or not is_ours(metadata):
            return None
        table, properties = read_table(ref, metadata), metadata["properties"]
        column = shard_column(self.config.prefix)
        seen = {name: projected(metadata, (column, name)) for name in shards_of(properties)}
        parts = {
            n: ShardStatus(part_table(properties, n, table), load_state(m)) for n, m in seen.items() if m is not None
        }
        return SharedTable(table, parts, shape_of(properties))

    @property
    def why_no_shards(self) -> str:
        """A REST server checks no requirement of ours, and tags stand for one fence only."""
        if self.config.catalog == "rest":
            return "a lake with a REST catalog cannot hold the rows of several connections in one table"
        return ""

    def spark_catalog(self) -> Mapping[str, str]:
        """Spark settings under which the lake is the catalog `self.lake.name`; nothing secret is among them."""
        return self.lake.spark_conf()

    def test(self) -> list[Check]:
        from instep.destinations.iceberg.check import check_lake

        return check_lake(self.lake)

    def inspect(self, refs: Iterable[Ref]) -> Catalog:
        found = self.lake.metadata(refs)
        if shared := next((ref for ref, m in found.items() if shards_of(m.get("properties", {}))), None):
            raise is_shared(shared)
        return Catalog.of(self._table(ref, metadata) for ref, metadata in found.items())

    def _table(self, ref: Ref, metadata: Metadata) -> Table:
        """What a metadata file says stays what it said: a run looks at its tables more than once."""
        known = self._read.get(ref)
        if known is None or known[0] is not metadata:
            known = self._read[ref] = (metadata, read_table(ref, metadata))
        return known[1]

    def tables(self) -> list[Ref]:
        hidden = (self.lake.staging, self.lake.dropped)
        shown = [ref for ref in self.lake.refs() if ref[0] not in hidden]
        return sorted(
            ref for ref, metadata in self.lake.metadata(shown).items() if is_ours(metadata) or is_copy(metadata)
        )

    def foreign(self, refs: Iterable[Ref]) -> dict[Ref, str]:
        found = self.lake.metadata(refs).items()
        shared = {ref: str(is_shared(ref)) for ref, metadata in found if shards_of(metadata.get("properties", {}))}
        return {ref: str(not_ours(ref)) for ref, metadata in found if not is_ours(metadata)} | shared

    def guards(self, refs: Iterable[Ref]) -> dict[Ref, Guards]:
        found = ((ref, guards(metadata)) for ref, metadata in self.lake.metadata(refs).items())
        return {ref: guarded for ref, guarded in found if guarded}

    def layouts(self, refs: Iterable[Ref]) -> dict[Ref, TableLayout]:
        found = self.lake.metadata(refs).items()
        return {ref: layout_of(m) for ref, m in found if is_ours(m) and not read_pending(ref, m)}

    def property_fault(self, name: str) -> str:
        return property_fault(name)

    def partition_fault(self, term: PartitionTerm, kind: DataType) -> str:
        return fault(term, kind)

    def ddl(self, steps: Sequence[Step]) -> list[str]:
        from instep.destinations.iceberg.evolve.spark_sql import statements

        return statements(steps)

    def claim(self, ref: Ref, fence: int) -> None:
        from instep.destinations.iceberg.write import load as iceberg_load

        iceberg_load.claim(self.lake, ref, fence)

    def remove_uncommitted_files(self, ref: Ref, runs: Mapping[str, int]) -> None:
        from instep.destinations.iceberg.maintain import purge as iceberg_purge

        iceberg_purge.remove_uncommitted_files(self.lake, ref, runs)

    def born_with_rows(self) -> AbstractContextManager[None]:
        from instep.destinations.iceberg.commit import deferred_create as iceberg_births

        return iceberg_births.born_with_rows(self.lake)

    def execute(self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit) -> None:
        from instep.destinations.iceberg.evolve import ddl as iceberg_ddl

        with iceberg_views.in_step(self.lake, ref, steps, after, commit.fence):
            iceberg_ddl.execute(self.lake, ref, steps, after, commit)

    def undrop_table(self, ref: Ref, table: Table, commit: Commit) -> None:
        from instep.destinations.iceberg.evolve import ddl as iceberg_ddl

        iceberg_ddl.unpark(self.lake, ref, table, commit)

    def dropped(self, ref: Ref, source_id: str | None) -> bool:
        from instep.destinations.iceberg.evolve import undo as iceberg_undo

        there = self.lake.metadata([ref]).get(ref)
        return there is not None or iceberg_undo.parked(self.lake, ref, source_id) is not None

    def undrop_report(self, ref: Ref, column: str) -> UndropReport:
        from instep.destinations.iceberg.evolve import undo as iceberg_undo

        return iceberg_undo.undrop_report(self.lake, ref, column)

    def refill(self, ref: Ref, column: str, commit: Commit) -> int:
        from instep.destinations.iceberg.backfill import restore_values as iceberg_refill

        return iceberg_refill.refill(self.lake, ref, column, commit)

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        from instep.destinations.iceberg.backfill import fill as iceberg_fill

        return iceberg_fill.size(self.lake, ref, columns)

    def fill(
        self,
        session: SparkSession | None,
        ref: Ref,
        fill: Fill,
        commit: Commit,
        told: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> Filled:
        from instep.destinations.iceberg.backfill import fill as iceberg_fill

        return iceberg_fill.fill(self.lake, session, ref, fill, commit, told, go_on)

    @property
    def why_no_views(self) -> str:
        if self.lake.holds_views:
            return ""
        where = "a warehouse elsewhere" if self.lake.is_sqlite else f"a {self.config.catalog} catalog"
        return f"views are kept in the catalog file of a local lake, and {self.config.name} has {where}"

    def views(self) -> dict[Ref, View]:
        return iceberg_views.views(self.lake)

    def put_view(self, view: View, fence: int) -> None:
        iceberg_views.put_view(self.lake, view, fence)

    def drop_view(self, ref: Ref) -> None:
        iceberg_views.drop_view(self.lake, ref)

    def promote(self, ref: Ref, columns: Mapping[str, OverflowColumn], extra: str, commit: Commit) -> Promoted:
        from instep.destinations.iceberg.backfill import promote_overflow as iceberg_promote

        return iceberg_promote.promote(self.lake, ref, columns, extra, commit)

    def count_invalid_values(self, ref: Ref, column: str, kind: DataType) -> InvalidValueCount:
        from instep.destinations.iceberg.evolve import undo as iceberg_undo

        return iceberg_undo.count_invalid_values(self.lake, ref, column, kind)

    def savepoints(self, ref: Ref) -> Sequence[Savepoint]:
        from instep.destinations.iceberg.maintain import restore as iceberg_restore

        return iceberg_restore.savepoints(self.lake, ref)

    def rows_at(self, ref: Ref, snapshot: int) -> int:
        from instep.destinations.iceberg.maintain import restore as iceberg_restore

        return iceberg_restore.rows_at(self.lake, ref, snapshot)

    def restore(self, ref: Ref, snapshot: int, base: int, rows: int, commit: Commit) -> None:
        from instep.destinations.iceberg.maintain import restore as iceberg_restore

        iceberg_restore.restore(self.lake, ref, snapshot, base, rows, commit)

    def forget(self, refs: Iterable[Ref], fence: int) -> list[str]:
        from instep.destinations.iceberg.maintain import purge as iceberg_forget

        return iceberg_forget.forget(self.lake, refs, fence)

    maintenance = ("small files and deleted rows", "manifests", "old snapshots", "orphaned files")

    def layout(self, ref: Ref) -> Layout:
        from instep.destinations.iceberg.maintain import maintain as iceberg_maintain

        return iceberg_maintain.layout(self.lake, ref)

    def due(self, ref: Ref, how: Maintenance) -> bool:
        from instep.destinations.iceberg.maintain import maintain as iceberg_maintain

        return iceberg_maintain.due(self.lake, ref, how)

    def held_by(self, ref: Ref) -> int:
        metadata = self.lake.metadata([ref]).get(ref)
        return int(metadata["properties"].get(FENCE, "0")) if metadata else 0

    def maintain(self, ref: Ref, work: Upkeep) -> Maintained:
        from instep.destinations.iceberg.maintain import maintain as iceberg_maintain

        return iceberg_maintain.maintain(self.lake, ref, work)

    def sample_cast(self, ref: Ref, column: str, kind: DataType, key: Sequence[str], rows: int) -> CastSample:
        from instep.destinations.iceberg.maintain import sample as iceberg_sample

        return iceberg_sample.sample_cast(self.lake, ref, column, kind, key, rows)

    def adopt(self, ref: Ref, table: Table, commit: Commit) -> None:
        """Take over an Iceberg table that something else made; `table` describes all of its columns."""
        from instep.destinations.iceberg.evolve import ddl as iceberg_ddl

        iceberg_ddl.adopt(self.lake, ref, table, commit)

    def target(self, ref: Ref) -> StagingTarget:
        from instep.destinations.iceberg.commit.shard_table import own_data, own_quarantine, staged_schema
        from instep.destinations.iceberg.evolve.ddl import pending_fields
        from instep.destinations.iceberg.metadata.files import arrow_schema, iceberg_schema
        from instep.destinations.iceberg.metadata.partition import partitioning
        from instep.destinations.iceberg.write import load as iceberg_load

        table, metadata = iceberg_load.load_ours(self.lake, ref)
        check_loadable(".".join(ref), metadata)
        pending = read_pending(ref, metadata)
        schema = (
            iceberg_schema(pending_fields(pending, metadata)) if pending else staged_schema(table) or table.schema()
        )
        within, by = within_of(metadata["properties"]), None if pending else partitioning(table.metadata)
        types = {c.name: c.type for c in read_table(ref, metadata).columns} if within else {}
        tasks = with_shard(arrow_schema(schema), within)
        return StagingTarget(tasks, own_data(table), own_quarantine(table), self.lake.io(), types, by)

    def room(self) -> StorageFolder | None:
        """The lake is made first: what lies in a folder without a catalog is somebody else's."""
        if not self.lake.is_sqlite and "://" not in self.config.warehouse:
            return None  # a name that the catalog knows
        _ = self.lake.catalog
        return StorageFolder(f"{self.lake.warehouse}/_instep_runs", self.lake.io())

    def state(self, ref: Ref) -> LoadState | None:
        metadata = self.lake.metadata([ref]).get(ref)
        if metadata is None:
            return None
        ours(ref, metadata)
        return None if read_pending(ref, metadata) else load_state(metadata)

    def sizes(self, refs: Iterable[Ref]) -> dict[Ref, TableSize]:
        """Return the sizes by what loads have recorded, and by the summaries of snapshots."""
        return {ref: table_size(m) for ref, m in self.lake.metadata(refs).items() if is_ours(m)}

    def append(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        from instep.destinations.iceberg.write import load as iceberg_load

        return iceberg_load.append(self.lake, ref, files, commit)

    def overwrite(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        from instep.destinations.iceberg.write import load as iceberg_load

        with iceberg_views.in_step(self.lake, ref, (), None, commit.fence):
            return iceberg_load.overwrite(self.lake, ref, files, commit)

    def merge(
        self, spark: SparkSession | None, ref: Ref, files: Sequence[StagedFile], merge: Merge, commit: Commit
    ) -> LoadOutcome:
        from instep.destinations.iceberg.write import merge as iceberg_merge

        with iceberg_views.in_step(self.lake, ref, (), None, commit.fence):
            return iceberg_merge.merge(self.lake, spark, ref, files, merge, commit)

    @property
    def quarantine_days(self) -> int:
        return self.config.quarantine_days

    def lookup_rows(self, ref: Ref, keys: pa.Table) -> RowLookup:
        from instep.destinations.iceberg.write import row_edits as iceberg_quarantine

        return iceberg_quarantine.lookup_rows(self.lake, ref, keys)

    def update_rows(self, ref: Ref, met: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        from instep.destinations.iceberg.write import row_edits as iceberg_quarantine

        return iceberg_quarantine.update_rows(self.lake, ref, met, change, commit)

    def keep(self, ref: Ref, place: Ref, commit: Commit) -> int | None:
        from instep.destinations.iceberg.maintain import clone as iceberg_copies

        return iceberg_copies.keep(self.lake, ref, place, commit)

    def purge(self, place: Ref, fence: int) -> None:
        from instep.destinations.iceberg.maintain import clone as iceberg_copies

        iceberg_copies.purge(self.lake, place, fence)

    def read(self, ref: Ref, columns: Sequence[str] = ()) -> pa.RecordBatchReader:
        from instep.destinations.iceberg.write import load as iceberg_load

        table = iceberg_load.load_readable(self.lake, ref)
        scan = table.scan(selected_fields=tuple(columns)) if columns else table.scan()
        return scan.to_arrow_batch_reader()

    def first_rows(self, ref: Ref, rows: int) -> pa.Table:
        from instep.destinations.iceberg.maintain.sample import first_of
        from instep.destinations.iceberg.write import load as iceberg_load

        return first_of(iceberg_load.load_readable(self.lake, ref), rows)
