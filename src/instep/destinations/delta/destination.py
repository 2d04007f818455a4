"""The Delta Lake destination: tables in folders, written by their log's own rules, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
from instep.destinations.connection_test import COMMIT, checks_of, scratch, scratch_file
from instep.destinations.delta import ddl, keep, load, merge, partition, promote, restore, rows
from instep.destinations.delta import fill as _fill
from instep.destinations.delta import maintain as _maintain
from instep.destinations.delta import promote as refill
from instep.destinations.delta.ddl import CAPABILITIES, statements
from instep.destinations.delta.files import io_of
from instep.destinations.delta.held import DeltaTableState, find, not_ours, require
from instep.destinations.delta.keep import remove_uncommitted_files
from instep.destinations.delta.objects import ObjectWarehouse
from instep.destinations.delta.shape import arrow_schema
from instep.destinations.delta.warehouse import Folders, Warehouse, local_root
from instep.destinations.facets import Layout, Maintained, Savepoint, Upkeep
from instep.destinations.first_rows import first_rows
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.destinations.shared import SharedTable, is_shared, shard_column, with_shard
from instep.destinations.writable import check_writable
from instep.errors import DestinationError
from instep.model import Check
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.layout import TableLayout
from instep.schema.catalog.partition import PartitionTerm
from instep.schema.catalog.types import DataType
from instep.schema.changes.describe import TableRemoved
from instep.schema.maintenance import Maintenance
from instep.schema.planning.guard import Guards
from instep.schema.planning.plan import Step
from instep.schema.planning.step import step
from instep.stage.files.object_store import ObjectPath, is_object
from instep.stage.files.place import StorageFolder
from instep.stage.spec import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class DeltaConfig:
    """`warehouse`: the folder of the tables, or a place in S3, reached by `properties` (which may hold credentials).
    `undo_days`: how long what was dropped is kept."""

    name: str
    warehouse: str
    prefix: str = "_instep_"
    quarantine_days: int = 30
    undo_days: float = 7
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


def warehouse_of(config: DeltaConfig, part: tuple[str, str] | None = None) -> Warehouse:
    """`part`: the only shard that is looked at. ConnectError for a place that is neither a folder nor in S3."""
    if is_object(config.warehouse):
        return ObjectWarehouse(ObjectPath(config.warehouse.rstrip("/"), config.properties), config.undo_days, part)
    return Folders(local_root(config.warehouse), config.undo_days, part)


class DeltaDestination:
    """See `destinations.base.Destination`."""

    kind = "delta"
    capabilities = CAPABILITIES

    def __init__(self, config: DeltaConfig, shard: str = "") -> None:
        """`shard`: the only one of shared tables that it loads and reads."""
        self.config = config
        self.warehouse = warehouse_of(config, (shard_column(config.prefix), shard) if shard else None)

    def part(self, shard: str) -> DeltaDestination:
        return DeltaDestination(self.config, shard)

    def whole(self, ref: Ref) -> SharedTable | None:
        held = find(self.warehouse, ref)
        return held.record.whole(held.table()) if held is not None and not held.record.copy else None

    @property
    def quarantine_days(self) -> int:
        return self.config.quarantine_days

    def check_writable(self) -> None:
        check_writable(self.config.name, *self.warehouse.places)

    def spark_catalog(self) -> Mapping[str, str]:
        """Spark only writes the staged files."""
        return {}

    def test(self) -> list[Check]:

        return check_warehouse(self)

    def tables(self) -> list[Ref]:
        refs = self.warehouse.refs()
        return [ref for ref, ours in zip(refs, self.warehouse.each(self._may_be_ours, refs), strict=True) if ours]

    def _may_be_ours(self, ref: Ref) -> bool:
        """A log that cannot be read is said to be broken by whoever wants its table."""
        try:
            return find(self.warehouse, ref) is not None
        except DestinationError:
            return True

    def inspect(self, refs: Iterable[Ref]) -> Catalog:
        return Catalog.of(table for table in self.warehouse.each(self._table, refs) if table is not None)

    def _table(self, ref: Ref) -> Table | None:
        held = find(self.warehouse, ref)
        if self._is_foreign(ref, held):
            raise not_ours(ref)
        if held is not None and held.record.parts:
            raise is_shared(ref)
        return held.table() if held is not None else None

    def _is_foreign(self, ref: Ref, held: DeltaTableState | None) -> bool:
        return (held is None or bool(held.record.copy)) and self.warehouse.is_taken(ref)

    def foreign(self, refs: Iterable[Ref]) -> dict[Ref, str]:
        wanted = list(refs)
        found = zip(wanted, self.warehouse.each(self._why_foreign, wanted), strict=True)
        return {ref: str(why) for ref, why in found if why is not None}

    def _why_foreign(self, ref: Ref) -> DestinationError | None:
        held = find(self.warehouse, ref)
        if self._is_foreign(ref, held):
            return not_ours(ref)
        return is_shared(ref) if held is not None and held.record.parts else None

    def guards(self, refs: Iterable[Ref]) -> dict[Ref, Guards]:
        found = ((ref, find(self.warehouse, ref)) for ref in refs)
        made = {ref: partition.guards((*held.by, *held.next_by)) for ref, held in found if held is not None}
        return {ref: guards for ref, guards in made.items() if guards}

    def layouts(self, refs: Iterable[Ref]) -> dict[Ref, TableLayout]:
        found = ((ref, find(self.warehouse, ref)) for ref in refs)
        there = ((ref, held) for ref, held in found if held is not None and held.record.pending is None)
        return {ref: TableLayout(partition=partition.terms(f.name for f in held.next_by)) for ref, held in there}

    def partition_fault(self, term: PartitionTerm, kind: DataType) -> str:
        return partition.fault(term, kind)

    def claim(self, ref: Ref, fence: int) -> None:
        load.claim(self.warehouse, ref, fence)

    def remove_uncommitted_files(self, ref: Ref, runs: Mapping[str, int]) -> None:
        remove_uncommitted_files(self.warehouse, ref, runs)

    def execute(self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit) -> None:
        ddl.execute(self.warehouse, ref, steps, after, commit)

    def ddl(self, steps: Sequence[Step]) -> list[str]:
        """Return the steps as Spark SQL over Delta tables."""
        return statements(steps)

    def undrop_table(self, ref: Ref, table: Table, commit: Commit) -> None:
        ddl.undrop_table(self.warehouse, ref, table, commit)

    def dropped(self, ref: Ref, source_id: str | None) -> bool:
        return keep.is_kept(self.warehouse, ref, source_id)

    def undrop_report(self, ref: Ref, column: str) -> UndropReport:
        return keep.undrop_report(self.warehouse, ref, column)

    def refill(self, ref: Ref, column: str, commit: Commit) -> int:
        return refill.refill(self.warehouse, ref, column, commit)

    def forget(self, refs: Iterable[Ref], fence: int) -> list[str]:
        return keep.forget(self.warehouse, refs, fence)

    def keep(self, ref: Ref, place: Ref, commit: Commit) -> int | None:
        return keep.keep(self.warehouse, ref, place, commit)

    def purge(self, place: Ref, fence: int) -> None:
        keep.purge(self.warehouse, place)

    def savepoints(self, ref: Ref) -> list[Savepoint]:
        return restore.savepoints(self.warehouse, ref)

    def rows_at(self, ref: Ref, snapshot: int) -> int:
        return restore.rows_at(self.warehouse, ref, snapshot)

    def restore(self, ref: Ref, snapshot: int, base: int, rows: int, commit: Commit) -> None:
        restore.restore(self.warehouse, ref, snapshot, base, rows, commit)

    maintenance = _maintain.WHAT

    def layout(self, ref: Ref) -> Layout:
        return _maintain.layout(self.warehouse, ref)

    def due(self, ref: Ref, how: Maintenance) -> bool:
        return _maintain.due(self.warehouse, ref, how)

    def held_by(self, ref: Ref) -> int:
        held = find(self.warehouse, ref)
        return held.record.fence if held else 0

    def maintain(self, ref: Ref, work: Upkeep) -> Maintained:
        return _maintain.maintain(self.warehouse, ref, work)

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        return _fill.size(self.warehouse, ref, columns)

    def fill(
        self,
        session: SparkSession | None,
        ref: Ref,
        fill: Fill,
        commit: Commit,
        told: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> Filled:
        """Fill the columns in one commit; no checks are needed in between."""
        done = _fill.fill(self.warehouse, ref, fill, commit)
        told(done.rows, done.bytes)
        return done

    def promote(self, ref: Ref, columns: Mapping[str, OverflowColumn], extra: str, commit: Commit) -> Promoted:
        return promote.promote(self.warehouse, ref, columns, extra, commit)

    def count_invalid_values(self, ref: Ref, column: str, kind: DataType) -> InvalidValueCount:
        return rows.count_invalid_values(self.warehouse, ref, column, kind)

    def sample_cast(self, ref: Ref, column: str, kind: DataType, key: Sequence[str], limit: int) -> CastSample:
        return rows.sample_cast(self.warehouse, ref, column, kind, key, limit)

    def target(self, ref: Ref) -> StagingTarget:
        held = require(self.warehouse, ref)
        by = held.next_by
        fields = held.waiting if held.record.pending is not None else held.fields
        within, shape = held.record.within, with_shard(arrow_schema(fields), held.record.within)
        schema = partition.limited(shape, (f.name for f in (*held.by, *by)))
        apart = None if held.only_partition else partition.partitioning(by, [f.name for f in by])
        types = {c.name: c.type for c in held.record.table.columns} if within else {}
        data, aside = ((held.folder / below).as_uri() for below in (held.area, held.aside))
        return StagingTarget(schema, data, aside, io_of(held), types, apart)

    def room(self) -> StorageFolder:
        return self.warehouse.room()

    def state(self, ref: Ref) -> LoadState | None:
        held = find(self.warehouse, ref)
        return held.state() if held else None

    def sizes(self, refs: Iterable[Ref]) -> dict[Ref, TableSize]:
        """Return the sizes by the statistics of the log."""
        wanted = list(refs)
        found = zip(wanted, self.warehouse.each(self._size, wanted), strict=True)
        return {ref: size for ref, size in found if size is not None}

    def _size(self, ref: Ref) -> TableSize | None:
        held = find(self.warehouse, ref)
        if held is None or held.record.copy:
            return None
        return TableSize(held.rows, held.bytes) if held.record.loaded else TableSize()

    def append(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        return load.append(self.warehouse, ref, files, commit)

    def overwrite(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        return load.overwrite(self.warehouse, ref, files, commit)

    def merge(
        self, spark: SparkSession | None, ref: Ref, files: Sequence[StagedFile], merge_by: Merge, commit: Commit
    ) -> LoadOutcome:
        return merge.merge(self.warehouse, ref, files, merge_by, commit, self.config.prefix)

    def lookup_rows(self, ref: Ref, keys: pa.Table) -> RowLookup:
        return rows.lookup_rows(self.warehouse, ref, keys)

    def update_rows(self, ref: Ref, met: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        return rows.update_rows(self.warehouse, ref, met, change, commit)

    def read(self, ref: Ref, columns: Sequence[str] = ()) -> pa.RecordBatchReader:
        return rows.read(self.warehouse, ref, columns)

    def first_rows(self, ref: Ref, limit: int) -> pa.Table:
        reader = rows.read(self.warehouse, ref)
        return first_rows(reader, limit, reader.schema)


def check_warehouse(destination: DeltaDestination) -> list[Check]:
    """Return one line for each thing that the folder must allow, until the first that fails."""
    on, folder = scratch("instep_test"), "the folder must allow new files and links to them"

    def write() -> None:
        destination.append(on.ref, [scratch_file(destination.target(on.ref))], COMMIT)

    return checks_of(
        [
            ("create a table", folder, lambda: destination.execute(on.ref, [on.added], on.table, COMMIT)),
            ("write a file", folder, write),
            ("alter the table", folder, lambda: destination.execute(on.ref, [on.widened], on.wider, COMMIT)),
            ("read it back", folder, lambda: destination.read(on.ref).read_all()),
            ("drop the table", folder, lambda: _drop(destination, on.ref, on.table)),
        ]
    )


def _drop(destination: DeltaDestination, ref: Ref, table: Table) -> None:
    """Nothing of it stays on the disk."""
    destination.execute(ref, [step(ref, TableRemoved(table))], None, COMMIT)
    for one in destination.warehouse.waiting():
        if one.ref == ref:
            destination.warehouse.delete(one.folder)
    destination.warehouse.unname(ref)
