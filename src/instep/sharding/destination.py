"""A destination as one connection has it that shares its tables with others: a wrapper of each of its facets.

Rows are loaded and read by the destination's own part: a shard's commits meet no rows but its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from instep.destinations.base import (
    HERE,
    BackfillResult,
    CastSample,
    Commit,
    FileWorkers,
    Fill,
    FillSize,
    InvalidValueCount,
    LoadOutcome,
    Merge,
    MergePath,
    Ref,
    RowLookup,
    RowUpdate,
    SparkStart,
    StagingTarget,
    UndropReport,
)
from instep.destinations.facets import (
    Destination,
    LifecycleFacet,
    MaintenanceFacet,
    ShardFacet,
    SharingFacet,
    WriteFacet,
)
from instep.destinations.filters import ColumnFilter
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.destinations.shared import retry_commit, shard_column
from instep.model import Check
from instep.schema.catalog.types import DataType
from instep.schema.planning.hazard import Capabilities
from instep.sharding.schema import ShardSchema, ShardView
from instep.stage.field_metadata import value_of
from instep.stage.fold import Scan
from instep.stage.spec import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class ShardWrite:
    """See `destinations.facets.WriteFacet`: only rows of the shard, whose name is in each of them."""

    name: str
    column: str
    part: WriteFacet

    def claim(self, ref: Ref, fence: int) -> None:
        """Take the shard's rows for `fence`."""
        self.part.claim(ref, fence)

    def target(self, ref: Ref) -> StagingTarget:
        """Return where tasks write the shard's files."""
        return self.part.target(ref)

    def append(
        self, ref: Ref, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None = None
    ) -> LoadOutcome:
        """Add rows, again if other shards were in the way."""
        return retry_commit(lambda: self.part.append(ref, files, commit, spark))

    def overwrite(
        self, ref: Ref, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None = None
    ) -> LoadOutcome:
        """Put rows in the place of the shard's, again if other shards were in the way."""
        return retry_commit(lambda: self.part.overwrite(ref, files, commit, spark))

    def merge(
        self, spark: SparkStart | None, ref: Ref, files: Sequence[StagedFile], how: Merge, commit: Commit
    ) -> LoadOutcome:
        """Merge by the shard's name and the key, again if other shards were in the way."""
        return retry_commit(lambda: self.part.merge(spark, ref, files, self._by_shard(how), commit))

    def _by_shard(self, how: Merge) -> Merge:
        return replace(how, key=(self.column, *how.key)) if how.key else how

    def merge_path(self, ref: Ref, files: Sequence[StagedFile], how: Merge) -> MergePath:
        """Return the path of the merge in the shared table."""
        return self.part.merge_path(ref, files, self._by_shard(how))

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        """Estimate filling columns of the shard's rows."""
        return self.part.fill_size(ref, columns)

    def fill(
        self,
        session: SparkSession | None,
        ref: Ref,
        work: Fill,
        commit: Commit,
        on_progress: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> BackfillResult:
        """Fill by the shard's name and the key, again if other shards were in the way."""
        own = replace(work, key=(self.column, *work.key))
        return retry_commit(lambda: self.part.fill(session, ref, own, commit, on_progress, go_on))

    def promote(
        self,
        ref: Ref,
        columns: Mapping[str, OverflowColumn],
        extra: str,
        commit: Commit,
        workers: FileWorkers = HERE,
    ) -> Promoted:
        """Move overflow values of the shard's rows into columns."""
        return self.part.promote(ref, columns, extra, commit, workers)

    def restore_dropped_values(self, ref: Ref, column: str, commit: Commit, workers: FileWorkers = HERE) -> int:
        """Restore values of the shard's rows."""
        return self.part.restore_dropped_values(ref, column, commit, workers)

    def lookup_rows(self, ref: Ref, keys: pa.Table) -> RowLookup:
        """Return the shard's rows that have one of the keys."""
        return self.part.lookup_rows(ref, self._named(keys, pa.field(self.column, pa.string())))

    def update_rows(self, ref: Ref, lookup: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        """Change rows that were met, again if other shards were in the way; new ones get the shard's name."""
        field = next(f for f in self.part.target(ref).schema if value_of(f) is not None)
        inserted, updated = (self._named(t, field) for t in (change.inserted, change.updated))
        own = replace(change, inserted=inserted, updated=updated)
        return retry_commit(lambda: self.part.update_rows(ref, lookup, own, commit))

    def _named(self, table: pa.Table, field: pa.Field) -> pa.Table:
        at = table.schema.get_field_index(field.name)
        values = pa.repeat(self.name, len(table)).cast(field.type)
        return table.set_column(at, field, values) if at >= 0 else table.add_column(0, field, values)

    def read(self, ref: Ref, names: Sequence[str] = (), filters: Sequence[ColumnFilter] = ()) -> pa.RecordBatchReader:
        """Return the shard's rows; without its name in them unless that is asked for."""
        own = names or [n for n in self.part.target(ref).schema.names if n != self.column]
        return self.part.read(ref, own, filters)

    def is_large(self, ref: Ref, files: Sequence[StagedFile] = ()) -> bool:
        """Return whether the shard's rows and those of the files are for tasks."""
        return self.part.is_large(ref, files)

    def scan(self, ref: Ref, names: Sequence[str]) -> Scan | None:
        """Return columns of the shard's rows, for tasks to read."""
        return self.part.scan(ref, names)

    def first_rows(self, ref: Ref, limit: int) -> pa.Table:
        """Return the first of the shard's rows, without its name in them."""
        rows = self.part.first_rows(ref, limit)
        return rows.select([name for name in rows.column_names if name != self.column])

    def count_invalid_values(self, ref: Ref, column: str, kind: DataType) -> InvalidValueCount:
        """Count those of the shard's rows."""
        return self.part.count_invalid_values(ref, column, kind)

    def sample_cast(self, ref: Ref, column: str, kind: DataType, key: Sequence[str], limit: int) -> CastSample:
        """Try a cast on the shard's rows."""
        return self.part.sample_cast(ref, column, kind, key, limit)


@dataclass(frozen=True)
class ShardLifecycle:
    """See `destinations.facets.LifecycleFacet`: what belongs to all shards is the destination's own."""

    base: LifecycleFacet
    part: LifecycleFacet

    clones = savepoints = preview = None

    @property
    def session(self) -> Callable[[], AbstractContextManager[None]] | None:
        return self.base.session

    @property
    def vacuum(self) -> Callable[[bool], tuple[int, int]] | None:
        return self.base.vacuum

    def spark_catalog(self) -> Mapping[str, str]:
        """Return how Spark reaches the destination."""
        return self.base.spark_catalog()

    def spark_table(self, ref: Ref) -> None:
        """Return nothing: Spark would read the rows of all shards."""

    def test(self) -> list[Check]:
        """Try a scratch table."""
        return self.base.test()

    def check_writable(self) -> None:
        """Raise ConnectError if this machine may not write the destination."""
        self.base.check_writable()

    def has_space(self) -> bool:
        """Return whether the destination's disks on this machine take a few megabytes."""
        return self.base.has_space()

    def deferred_create(self) -> AbstractContextManager[None]:
        """No-op: other shards have to see a table once it is created."""
        return nullcontext()

    def shared_storage(self) -> None:
        """Return none: only the tables' own places are known."""

    def remove_uncommitted_files(self, ref: Ref, runs: Mapping[str, int]) -> None:
        """Delete what the shard's runs that are over never committed."""
        self.part.remove_uncommitted_files(ref, runs)

    def dropped(self, ref: Ref, source_id: str | None) -> bool:
        """Return whether the whole table was dropped and is kept, or is back."""
        return self.base.dropped(ref, None)

    def undrop_report(self, ref: Ref, column: str) -> UndropReport:
        """Report what of a dropped column can be restored: if other shards have it, this shard's values are there."""
        return self.base.undrop_report(ref, column)

    def purge_expired(self, refs: Iterable[Ref], fence: int) -> list[str]:
        """Purge expired records of the whole tables, again if other shards were in the way."""
        named = list(refs)
        return retry_commit(lambda: self.base.purge_expired(named, 0))


class ShardedDestination:
    """See `destinations.facets.Destination`: that of one shard, which looks after its own files."""

    views = sharing = None

    def __init__(self, base: Destination, sharing: SharingFacet, name: str, column: str) -> None:
        self.kind, self.quarantine_days, self.base = base.kind, base.quarantine_days, base
        self.capabilities: Capabilities = replace(base.capabilities, views=False)
        self.part = sharing.part(name)
        self.schema = ShardSchema(ShardView(name, column, base, sharing, self.part, self.capabilities))
        self.shard: ShardFacet = self.schema
        self.lifecycle = ShardLifecycle(base.lifecycle, self.part.lifecycle)

    @cached_property
    def write(self) -> ShardWrite:
        shard = self.schema.shard
        return ShardWrite(shard.name, shard.column, self.part.write)

    @cached_property
    def maintenance(self) -> MaintenanceFacet | None:
        return self.part.maintenance


def sharded(base: Destination, name: str, prefix: str) -> Destination:
    """Return the destination as this shard has it, or as it is where it cannot share tables; `prefix` begins system
    columns."""
    sharing = base.sharing
    if sharing is None or sharing.why_none:
        return base
    return ShardedDestination(base, sharing, name, shard_column(prefix))
