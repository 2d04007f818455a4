"""The Delta Lake destination: tables in folders, written by their log's own rules, without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

from instep.destinations.base import LoadState, Ref, SparkTable, StagingTarget, TableSize
from instep.destinations.connection_test import COMMIT, check_writable, checks_of, has_space, scratch, scratch_file
from instep.destinations.delta import shape as partition
from instep.destinations.delta.ddl import CAPABILITIES, DeltaDdl, statements
from instep.destinations.delta.files import io_of
from instep.destinations.delta.fill import DeltaFills, DeltaRestoredValues
from instep.destinations.delta.maintain import DeltaMaintenance, DeltaSavepoints
from instep.destinations.delta.merge import DeltaMerges
from instep.destinations.delta.promote import DeltaPromotes
from instep.destinations.delta.retention import DeltaClones, DeltaRetention
from instep.destinations.delta.rows import DeltaRows
from instep.destinations.delta.shape import arrow_schema
from instep.destinations.delta.table_state import DeltaTableState, find, not_ours, require
from instep.destinations.delta.warehouse import DeltaFacet, Folders, ObjectWarehouse, Warehouse, local_root
from instep.destinations.shared import SharedTable, is_shared, shard_column, with_shard
from instep.errors import DestinationError
from instep.model import Check
from instep.project.sections.models import DeltaDestinationSection
from instep.project.sections.values import as_text
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.layout import PartitionTerm, TableLayout
from instep.schema.catalog.types import DataType
from instep.schema.changes.describe import TableRemoved
from instep.schema.planning.guard import Guards
from instep.schema.planning.plan import Step
from instep.schema.planning.step import step
from instep.stage.files.object_store import ObjectPath, is_object
from instep.stage.files.place import StorageFolder


class DeltaConfig(DeltaDestinationSection):
    """A folder or bucket of Delta tables under the `name` that the project file has for it."""

    type: Literal["delta"] = "delta"
    name: str


def warehouse_of(config: DeltaConfig, part: tuple[str, str] | None = None) -> Warehouse:
    """Return the warehouse; `part` limits it to one shard. Raises ConnectError for a place that is neither a folder
    nor in an object store."""
    if is_object(config.warehouse):
        place = ObjectPath(config.warehouse.rstrip("/"), as_text(config.properties))
        return ObjectWarehouse(place, config.undo_days, part)
    return Folders(local_root(config.warehouse), config.undo_days, part)


class DeltaSchema(DeltaDdl):
    """Tables as their logs describe them."""

    @property
    def layouts(self) -> DeltaLayouts:
        return DeltaLayouts(self.warehouse, self.prefix)

    def tables(self) -> list[Ref]:
        """Return all tables that instep created."""
        refs = self.warehouse.refs()
        return [ref for ref, ours in zip(refs, self.warehouse.each(self._may_be_ours, refs), strict=True) if ours]

    def _may_be_ours(self, ref: Ref) -> bool:
        """Return whether the table may be ours. A log that cannot be read counts as ours: whoever needs the table
        reports it as broken."""
        try:
            return find(self.warehouse, ref) is not None
        except DestinationError:
            return True

    def inspect(self, refs: Iterable[Ref]) -> Catalog:
        """Return the tables that exist; DestinationError for one that is not ours."""
        return Catalog.of(table for table in self.warehouse.each(self._table, refs) if table is not None)

    def _table(self, ref: Ref) -> Table | None:
        if (why := self._why_foreign(table_state := find(self.warehouse, ref), ref)) is not None:
            raise why
        return table_state.table() if table_state is not None else None

    def foreign(self, refs: Iterable[Ref]) -> dict[Ref, str]:
        """Return the tables that exist and are not ours."""
        requested = list(refs)
        reasons = self.warehouse.each(lambda ref: self._why_foreign(find(self.warehouse, ref), ref), requested)
        return {ref: str(why) for ref, why in zip(requested, reasons, strict=True) if why is not None}

    def _why_foreign(self, table_state: DeltaTableState | None, ref: Ref) -> DestinationError | None:
        if (table_state is None or table_state.record.copy) and self.warehouse.is_taken(ref):
            return not_ours(ref)
        return is_shared(ref) if table_state is not None and table_state.record.parts else None

    def guards(self, refs: Iterable[Ref]) -> dict[Ref, Guards]:
        """Return the columns that tables are partitioned by."""
        states = ((ref, find(self.warehouse, ref)) for ref in refs)
        fields = {ref: (*state.by, *state.next_by) for ref, state in states if state is not None}
        return {ref: guards for ref, by in fields.items() if (guards := partition.guards(by))}

    def state(self, ref: Ref, *, version: bool = False) -> LoadState | None:
        """Return the record of the last load."""
        table_state = find(self.warehouse, ref)
        return table_state.state() if table_state else None

    def sizes(self, refs: Iterable[Ref]) -> dict[Ref, TableSize]:
        """Return the sizes by the statistics of the log."""
        requested = list(refs)
        states = zip(requested, self.warehouse.each(lambda ref: find(self.warehouse, ref), requested), strict=True)
        ours = (
            (ref, table_state) for ref, table_state in states if table_state is not None and not table_state.record.copy
        )
        return {ref: TableSize(h.rows, h.bytes) if h.record.loaded else TableSize() for ref, h in ours}

    def render_ddl(self, steps: Sequence[Step]) -> list[str]:
        """Return the steps as Spark SQL over Delta tables."""
        return statements(steps)


class DeltaLayouts(DeltaFacet):
    """Partitions by columns."""

    whole = False

    def recorded(self, refs: Iterable[Ref]) -> dict[Ref, TableLayout]:
        """Return the partitions of tables without a pending new generation."""
        states = ((ref, find(self.warehouse, ref)) for ref in refs)
        ours = ((ref, state) for ref, state in states if state is not None and state.record.pending is None)
        return {ref: TableLayout(partition=partition.terms(f.name for f in state.next_by)) for ref, state in ours}

    def partition_fault(self, term: PartitionTerm, kind: DataType) -> str:
        """Return why a column of this type cannot be partitioned so; "" if it can."""
        return partition.partition_error(term, kind)

    def property_fault(self, name: str) -> str:
        """Return that properties cannot be set."""
        return f"{name} cannot be set: `properties` are for Iceberg"


class DeltaWrite(DeltaMerges, DeltaRows, DeltaFills, DeltaPromotes, DeltaRestoredValues):
    """Rows of Delta tables."""

    def target(self, ref: Ref) -> StagingTarget:
        """Return where tasks write a table's files."""
        table_state = require(self.warehouse, ref)
        by = table_state.next_by
        fields = table_state.waiting if table_state.record.pending is not None else table_state.fields
        within, shape = table_state.record.within, with_shard(arrow_schema(fields), table_state.record.within)
        schema = partition.limited(shape, (f.name for f in (*table_state.by, *by)))
        apart = None if table_state.only_partition else partition.partitioning(by, [f.name for f in by])
        types = {c.name: c.type for c in table_state.record.table.columns} if within else {}
        data, aside = ((table_state.folder / below).as_uri() for below in (table_state.area, table_state.aside))
        return StagingTarget(schema, data, aside, io_of(table_state), types, apart)


class DeltaLifecycle(DeltaRetention):
    """The warehouse itself."""

    session = vacuum = preview = None

    def __init__(self, destination: DeltaDestination) -> None:
        super().__init__(destination.warehouse, destination.config.prefix)
        self.destination = destination

    @property
    def clones(self) -> DeltaClones:
        return DeltaClones(self.warehouse, self.prefix)

    @property
    def savepoints(self) -> DeltaSavepoints:
        return DeltaSavepoints(self.warehouse, self.prefix)

    def spark_catalog(self) -> Mapping[str, str]:
        """Return nothing: Spark only writes the staged files."""
        return {}

    def spark_table(self, ref: Ref) -> SparkTable | None:
        """Return a table's folder; None in an object store, whose login a session has to bring."""
        if is_object(self.destination.config.warehouse):
            return None
        return SparkTable("delta", require(self.warehouse, ref).folder.as_uri())

    def test(self) -> list[Check]:
        """Try a scratch table."""
        return check_warehouse(self.destination)

    def check_writable(self) -> None:
        """Raise ConnectError if this machine may not write the folder."""
        check_writable(self.destination.config.name, *self.warehouse.places)

    def has_space(self) -> bool:
        """Return whether the folder's disk takes a few megabytes."""
        return has_space(*self.warehouse.places)

    def deferred_create(self) -> AbstractContextManager[None]:
        """No-op: a table exists once it is created."""
        return nullcontext()

    def shared_storage(self) -> StorageFolder:
        """Return a folder for files that belong to no table."""
        return self.warehouse.room()


class DeltaSharing:
    """Several connections' rows in one table."""

    why_none, layouts = "", False

    def __init__(self, destination: DeltaDestination) -> None:
        self.destination = destination

    def part(self, shard: str) -> DeltaDestination:
        """Return the destination as one shard loads and reads it."""
        return DeltaDestination(self.destination.config, shard)

    def shared_table(self, ref: Ref) -> SharedTable | None:
        """Return a table with its shards."""
        table_state = find(self.destination.warehouse, ref)
        return (
            table_state.record.whole(table_state.table())
            if table_state is not None and not table_state.record.copy
            else None
        )


class DeltaDestination:
    """See `destinations.facets.Destination`."""

    kind = "delta"
    capabilities = CAPABILITIES
    views = shard = None

    def __init__(self, config: DeltaConfig, shard: str = "") -> None:
        """Connect to the warehouse; `shard` limits loading and reading to one shard of shared tables."""
        self.config, self.quarantine_days = config, config.quarantine_days
        self.warehouse = warehouse_of(config, (shard_column(config.prefix), shard) if shard else None)
        self.schema = DeltaSchema(self.warehouse, config.prefix, config.upsert_rows)
        self.write = DeltaWrite(self.warehouse, config.prefix, config.upsert_rows)
        self.lifecycle = DeltaLifecycle(self)
        self.maintenance = DeltaMaintenance(self.warehouse, config.prefix)
        self.sharing = DeltaSharing(self)


def check_warehouse(destination: DeltaDestination) -> list[Check]:
    """Return a check of each thing that the folder must allow, up to the first that fails."""
    on, folder = scratch("instep_test"), "the folder must allow new files and links to them"

    def write() -> None:
        destination.write.append(on.ref, [scratch_file(destination.write.target(on.ref))], COMMIT)

    return checks_of(
        [
            ("create a table", folder, lambda: destination.schema.execute(on.ref, [on.added], on.table, COMMIT)),
            ("write a file", folder, write),
            ("alter the table", folder, lambda: destination.schema.execute(on.ref, [on.widened], on.wider, COMMIT)),
            ("read it back", folder, lambda: destination.write.read(on.ref).read_all()),
            ("drop the table", folder, lambda: _drop(destination, on.ref, on.table)),
        ]
    )


def _drop(destination: DeltaDestination, ref: Ref, table: Table) -> None:
    """Drop the table and delete its files."""
    destination.schema.execute(ref, [step(ref, TableRemoved(table))], None, COMMIT)
    for dropped in destination.warehouse.waiting():
        if dropped.ref == ref:
            destination.warehouse.delete(dropped.folder)
    destination.warehouse.unname(ref)
