"""The Iceberg destination: a lake of format-2 tables that Spark, DuckDB and pyiceberg read.

pyiceberg is imported where a table is written or read, and not where tables are inspected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from instep.destinations.base import HERE, Commit, FileWorkers, LoadState, Ref, SparkTable, TableSize, UndropReport
from instep.destinations.iceberg.commit.shard_lake import part_of
from instep.destinations.iceberg.evolve.views import IcebergViews, in_step
from instep.destinations.iceberg.metadata.catalog import IcebergConfig, Lake, LakeFacet
from instep.destinations.iceberg.metadata.layout import guards, layout_of, property_fault
from instep.destinations.iceberg.metadata.partition import partition_error
from instep.destinations.iceberg.metadata.records import (
    Metadata,
    is_copy,
    is_ours,
    load_state,
    not_ours,
    owned_properties,
    read_pending,
    read_table,
    table_size,
)
from instep.destinations.iceberg.metadata.schema import METADATA_COLUMNS
from instep.destinations.iceberg.metadata.shards import part_table, projected, shape_of, shards_of
from instep.destinations.shared import ShardStatus, SharedTable, is_shared, shard_column
from instep.destinations.types import ICEBERG_PROMOTIONS
from instep.model import Check
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.layout import PartitionTerm, TableLayout
from instep.schema.catalog.types import DataType
from instep.schema.planning.guard import Guards
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.plan import Step
from instep.stage.files.place import StorageFolder

if TYPE_CHECKING:
    from instep.destinations.iceberg.maintain.maintain import IcebergMaintenance
    from instep.destinations.iceberg.maintain.restore import IcebergClones, IcebergSavepoints
    from instep.destinations.iceberg.rows import IcebergWrite

__all__ = ["CAPABILITIES", "IcebergConfig", "IcebergDestination"]

CAPABILITIES = Capabilities(
    name="iceberg",
    promotes=ICEBERG_PROMOTIONS,
    nested=True,
    case_sensitive=False,
    undo_by_id=True,
    simultaneous_renames=True,
    comments=True,
    keys=True,
    max_name_bytes=255,
    merges_requested=True,
    versions=True,
    reserved=METADATA_COLUMNS,
)


class IcebergSchema(LakeFacet):
    """Tables as their metadata files describe them."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake)
        self._read: dict[Ref, tuple[Metadata, Table]] = {}

    @property
    def layouts(self) -> IcebergLayouts:
        return IcebergLayouts(self.lake)

    def tables(self) -> list[Ref]:
        """Return all tables that instep created."""
        hidden = (self.lake.staging, self.lake.dropped)
        shown = [ref for ref in self.lake.refs() if ref[0] not in hidden]
        return sorted(
            ref for ref, metadata in self.lake.metadata(shown).items() if is_ours(metadata) or is_copy(metadata)
        )

    def inspect(self, refs: Iterable[Ref]) -> Catalog:
        """Return the tables that exist; DestinationError for one that is not ours."""
        metadata_of = self.lake.metadata(refs)
        if shared := next((ref for ref, m in metadata_of.items() if shards_of(m.get("properties", {}))), None):
            raise is_shared(shared)
        return Catalog.of(self._table(ref, metadata) for ref, metadata in metadata_of.items())

    def _table(self, ref: Ref, metadata: Metadata) -> Table:
        """Return the parsed table, cached by its metadata: a run looks at its tables more than once."""
        cached = self._read.get(ref)
        if cached is None or cached[0] is not metadata:
            cached = self._read[ref] = (metadata, read_table(ref, metadata))
        return cached[1]

    def foreign(self, refs: Iterable[Ref]) -> dict[Ref, str]:
        """Return the tables that exist and are not ours."""
        tables = self.lake.metadata(refs).items()
        shared = {ref: str(is_shared(ref)) for ref, metadata in tables if shards_of(metadata.get("properties", {}))}
        return {ref: str(not_ours(ref)) for ref, metadata in tables if not is_ours(metadata)} | shared

    def guards(self, refs: Iterable[Ref]) -> dict[Ref, Guards]:
        """Return the columns that partitions, orders and identifiers stand on."""
        guards_of = ((ref, guards(metadata)) for ref, metadata in self.lake.metadata(refs).items())
        return {ref: guarded for ref, guarded in guards_of if guarded}

    def state(self, ref: Ref, *, version: bool = False) -> LoadState | None:
        """Return the record of the last load."""
        metadata = self.lake.metadata([ref]).get(ref)
        if metadata is None:
            return None
        owned_properties(ref, metadata)
        return None if read_pending(ref, metadata) else load_state(metadata)

    def sizes(self, refs: Iterable[Ref]) -> dict[Ref, TableSize]:
        """Return the sizes by what loads have recorded, and by the summaries of snapshots."""
        return {ref: table_size(m) for ref, m in self.lake.metadata(refs).items() if is_ours(m)}

    def execute(
        self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit, workers: FileWorkers = HERE
    ) -> None:
        """Execute all steps of one table; its views follow."""

        from instep.destinations.iceberg.evolve.ddl import execute

        with in_step(self.lake, ref, steps, after, commit.fence):
            execute(self.lake, ref, steps, after, commit, workers)

    def render_ddl(self, steps: Sequence[Step]) -> list[str]:
        """Return the steps as Spark SQL over Iceberg tables."""
        from instep.destinations.iceberg.evolve.spark_sql import statements

        return statements(steps)

    def undrop_table(self, ref: Ref, table: Table, commit: Commit) -> None:
        """Bring a dropped table back under its name."""
        from instep.destinations.iceberg.evolve.ddl import unpark

        unpark(self.lake, ref, table, commit)

    def adopt(self, ref: Ref, table: Table, commit: Commit) -> None:
        """Take over an Iceberg table that something else made; `table` describes all of its columns."""
        from instep.destinations.iceberg.evolve.ddl import adopt

        adopt(self.lake, ref, table, commit)


class IcebergLayouts(LakeFacet):
    """Properties, orders and partitions."""

    whole = True

    def recorded(self, refs: Iterable[Ref]) -> dict[Ref, TableLayout]:
        """Return the layouts of tables that wait for no new generation."""
        metadata = self.lake.metadata(refs).items()
        return {ref: layout_of(m) for ref, m in metadata if is_ours(m) and not read_pending(ref, m)}

    def partition_fault(self, term: PartitionTerm, kind: DataType) -> str:
        """Return why a column of this type cannot be partitioned so; "" if it can."""
        return partition_error(term, kind)

    def property_fault(self, name: str) -> str:
        """Return why settings cannot set a property; "" if they can."""
        return property_fault(name)


class IcebergLifecycle(LakeFacet):
    """The lake itself, and what it keeps of what was dropped."""

    session = vacuum = None

    @property
    def clones(self) -> IcebergClones:
        from instep.destinations.iceberg.maintain.restore import IcebergClones

        return IcebergClones(self.lake)

    @property
    def savepoints(self) -> IcebergSavepoints:
        from instep.destinations.iceberg.maintain.restore import IcebergSavepoints

        return IcebergSavepoints(self.lake)

    @contextmanager
    def preview(self, refs: Collection[Ref]) -> Iterator[IcebergDestination]:
        """Open a lake with these tables as they are now, to try changes in."""
        from instep.destinations.iceberg.maintain.preview import lake_beside

        with lake_beside(self.lake, refs) as beside:
            yield IcebergDestination(beside.config, beside)

    def spark_catalog(self) -> Mapping[str, str]:
        """Return the Spark settings under which the lake is the catalog `lake.name`; none of them is secret. Of a
        catalog that Spark must not open they define none, and name the code for its files."""
        return self.lake.spark_conf() if self.lake.is_for_spark else self.lake.spark_file_code()

    def spark_table(self, ref: Ref) -> SparkTable | None:
        """Return the table's name in the catalog; None if Spark must not open that."""
        if not self.lake.is_for_spark:
            return None
        name = ".".join(f"`{part.replace('`', '``')}`" for part in (self.lake.name, *ref))
        return SparkTable("iceberg", name, self.lake.spark_conf(), self.lake.spark_secrets())

    def test(self) -> list[Check]:
        """Try a scratch table."""

        from instep.destinations.iceberg.check import check_lake

        return check_lake(self.lake)

    def check_writable(self) -> None:
        """Raise ConnectError if this machine may not write the lake."""
        self.lake.check_writable()

    def has_space(self) -> bool:
        """Return whether the lake's disk takes a few megabytes."""
        return self.lake.has_space()

    def deferred_create(self) -> AbstractContextManager[None]:
        """Make tables appear with their first rows."""
        from instep.destinations.iceberg.commit.deferred_create import deferred_creation

        return deferred_creation(self.lake)

    def shared_storage(self) -> StorageFolder | None:
        """Return the shared folder; the lake is created first, as files in a folder without a catalog belong to
        somebody else."""
        if not self.lake.is_sqlite and "://" not in self.lake.config.warehouse:
            return None  # a name that the catalog knows
        _ = self.lake.catalog
        return StorageFolder(f"{self.lake.warehouse}/_instep_runs", self.lake.io())

    def remove_uncommitted_files(self, ref: Ref, runs: Mapping[str, int]) -> None:
        """Delete what runs that are over wrote for a claimed table and never committed."""
        from instep.destinations.iceberg.maintain.expire import remove_uncommitted_files

        remove_uncommitted_files(self.lake, ref, runs)

    def dropped(self, ref: Ref, source_id: str | None) -> bool:
        """Return whether the table was dropped and is kept, or is back."""
        from instep.destinations.iceberg.evolve.undo import parked

        return ref in self.lake.metadata([ref]) or parked(self.lake, ref, source_id) is not None

    def undrop_report(self, ref: Ref, column: str) -> UndropReport:
        """Report what of a dropped column can be restored."""
        from instep.destinations.iceberg.evolve.undo import undrop_report

        return undrop_report(self.lake, ref, column)

    def purge_expired(self, refs: Iterable[Ref], fence: int) -> list[str]:
        """Purge expired dropped columns and tables; return their names."""
        from instep.destinations.iceberg.maintain.expire import purge_expired

        return purge_expired(self.lake, refs, fence)


class IcebergSharing(LakeFacet):
    """Several connections' rows in one table."""

    layouts = True

    @property
    def why_none(self) -> str:
        """A REST server checks no requirement of ours, and tags stand for one fence only."""
        if self.lake.config.catalog_type == "rest":
            return "a lake with a REST catalog cannot hold the rows of several connections in one table"
        return ""

    def part(self, shard: str) -> IcebergDestination:
        """Return the destination as one shard loads and reads it."""
        return IcebergDestination(self.lake.config, part_of(self.lake, shard))

    def shared_table(self, ref: Ref) -> SharedTable | None:
        """Return a table with its shards."""
        metadata = self.lake.metadata([ref]).get(ref)
        if metadata is None or not is_ours(metadata):
            return None
        table, properties = read_table(ref, metadata), metadata["properties"]
        column = shard_column(self.lake.config.prefix)
        seen = {name: projected(metadata, (column, name)) for name in shards_of(properties)}
        parts = {
            n: ShardStatus(part_table(properties, n, table), load_state(m)) for n, m in seen.items() if m is not None
        }
        return SharedTable(table, parts, shape_of(properties))


class IcebergDestination:
    """See `destinations.facets.Destination`."""

    kind, shard = "iceberg", None

    def __init__(self, config: IcebergConfig, lake: Lake | None = None) -> None:
        """Connect to the lake; `lake` is a shard's view of one."""
        self.config, self.quarantine_days = config, config.quarantine_days
        self.lake = lake or Lake(config)
        self.capabilities = replace(CAPABILITIES, views=self.lake.holds_views)
        self.schema, self.lifecycle = IcebergSchema(self.lake), IcebergLifecycle(self.lake)
        self.views, self.sharing = IcebergViews(self.lake), IcebergSharing(self.lake)

    @cached_property
    def write(self) -> IcebergWrite:
        from instep.destinations.iceberg.rows import IcebergWrite

        return IcebergWrite(self.lake)

    @cached_property
    def maintenance(self) -> IcebergMaintenance:
        from instep.destinations.iceberg.maintain.maintain import IcebergMaintenance

        return IcebergMaintenance(self.lake)
