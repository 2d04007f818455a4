"""Facets of destinations: the abilities that a destination has. A missing facet is None.

One contract suite (tests/contract/test_destination.py) runs over all destinations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

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
    Layout,
    LoadOutcome,
    LoadState,
    Maintained,
    MaintenanceSpec,
    Merge,
    MergePath,
    Ref,
    RowLookup,
    RowUpdate,
    Savepoint,
    SparkStart,
    SparkTable,
    StagingTarget,
    TableSize,
    UndropReport,
)
from instep.destinations.filters import ColumnFilter
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.destinations.shared import SharedTable
from instep.model import Check
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.layout import PartitionTerm, TableLayout
from instep.schema.catalog.types import DataType
from instep.schema.maintenance import Maintenance
from instep.schema.planning.aliases import View
from instep.schema.planning.guard import Guards
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.plan import Step
from instep.stage.files.place import StorageFolder
from instep.stage.fold import Scan
from instep.stage.spec import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Destination(Protocol):
    """A destination as one connection has it."""

    @property
    def kind(self) -> str: ...

    @property
    def quarantine_days(self) -> int:
        """Days for which quarantined values are kept after they were last quarantined; 0 keeps them forever."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def schema(self) -> SchemaFacet: ...

    @property
    def write(self) -> WriteFacet: ...

    @property
    def lifecycle(self) -> LifecycleFacet: ...

    @property
    def maintenance(self) -> MaintenanceFacet | None:
        """Maintenance of tables; None if they need none, or look after themselves."""
        ...

    @property
    def views(self) -> ViewsFacet | None: ...

    @property
    def sharing(self) -> SharingFacet | None:
        """Shared tables; None if tables have the rows of one connection each, or this is a shard's view already."""
        ...

    @property
    def shard(self) -> ShardFacet | None:
        """The connection's shard; None if the connection has its tables for itself."""
        ...


class SchemaFacet(Protocol):
    """Tables as their metadata describes them, and what changes them."""

    @property
    def layouts(self) -> LayoutsFacet | None:
        """Table layouts; None if settings cannot say how tables are laid out."""
        ...

    def tables(self) -> list[Ref]:
        """Return all tables that instep created."""
        ...

    def inspect(self, refs: Iterable[Ref]) -> Catalog:
        """Return the tables among `refs` that exist, as they are; `Column.id` and `Table.id` are the recorded source
        ids, `Column.alias` the recorded source name. A table that is not ours raises DestinationError."""
        ...

    def foreign(self, refs: Iterable[Ref]) -> Mapping[Ref, str]:
        """Return the tables among `refs` that exist and are not ours, and what to tell people about them."""
        ...

    def guards(self, refs: Iterable[Ref]) -> Mapping[Ref, Guards]:
        """Return the columns of those of `refs` that exist on which something stands, from metadata alone."""
        ...

    def state(self, ref: Ref, *, version: bool = False) -> LoadState | None:
        """Return the record of the last load. `version`: with the version of its rows, also where that takes reading
        them."""
        ...

    def sizes(self, refs: Iterable[Ref]) -> Mapping[Ref, TableSize]:
        """Return the sizes of those of `refs` that exist and are ours, from metadata alone and by few statements."""
        ...

    def execute(
        self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit, workers: FileWorkers = HERE
    ) -> None:
        """Execute all steps of one table, in one commit where the format can; `after` is the table that they lead
        to, None for a drop. `workers` rewrite a large table's files; files that a killed run has rewritten already
        are used."""
        ...

    def render_ddl(self, steps: Sequence[Step]) -> Sequence[str]:
        """Return statements that a person would write for these steps, in order; to read, never executed. None where
        a step is not what becomes of the table."""
        ...

    def undrop_table(self, ref: Ref, table: Table, commit: Commit) -> None:
        """Bring back a dropped table under its name, with its rows; do nothing if it is back already."""
        ...


class LayoutsFacet(Protocol):
    """Partitions that settings may say. Other ones are given to a table that has rows when it is loaded whole."""

    @property
    def whole(self) -> bool:
        """True if settings may also set properties and a sort order, all of which can change at any time."""
        ...

    def recorded(self, refs: Iterable[Ref]) -> Mapping[Ref, TableLayout]:
        """Return the layout that settings have set on existing tables, or that comes with the next full load.

        Tables that wait for a new generation are left out.
        """
        ...

    def partition_fault(self, term: PartitionTerm, kind: DataType) -> str:
        """Return why a column of this type cannot be partitioned so; "" if it can."""
        ...

    def property_fault(self, name: str) -> str:
        """Return why settings cannot set a property; "" if they can."""
        ...


class WriteFacet(Protocol):
    """Rows: those of runs, and those of people who put something right."""

    def claim(self, ref: Ref, fence: int) -> None:
        """Refuse commits with a lower fence from now on (Fenced). A missing table is ignored."""
        ...

    def target(self, ref: Ref) -> StagingTarget: ...

    def append(
        self, ref: Ref, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None = None
    ) -> LoadOutcome:
        """Add the files' rows. `spark` is called where its tasks can bring them."""
        ...

    def overwrite(
        self, ref: Ref, files: Sequence[StagedFile], commit: Commit, spark: SparkStart | None = None
    ) -> LoadOutcome:
        """Replace all rows: readers see the old rows or the new ones. `spark` is called as for `append`."""
        ...

    def merge(
        self, spark: SparkStart | None, ref: Ref, files: Sequence[StagedFile], how: Merge, commit: Commit
    ) -> LoadOutcome:
        """Merge the files' rows by key. `spark` is called by a merge that uses Spark; without it, or without a
        session, a merge that only Spark can do raises SparkNeeded."""
        ...

    def is_large(self, ref: Ref, files: Sequence[StagedFile] = ()) -> bool:
        """Return whether the table's rows and those of the files are more than the setting lets this process work on,
        from metadata alone. False where a server does the work."""
        ...

    def merge_path(self, ref: Ref, files: Sequence[StagedFile], how: Merge) -> MergePath:
        """Return the path that `merge` takes with these files, from metadata alone: `merge` goes by it, too."""
        ...

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        """Estimate filling these columns, from metadata alone."""
        ...

    def fill(
        self,
        session: SparkSession | None,
        ref: Ref,
        work: Fill,
        commit: Commit,
        on_progress: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> BackfillResult:
        """Fill NULLs of a column with its value, never replacing a value, in several commits: `on_progress` gets
        rows and bytes written so far, `go_on` is called after each commit that changed something. Without a session
        it is done in this process. Cursor and accepted fingerprint stay."""
        ...

    def promote(
        self,
        ref: Ref,
        columns: Mapping[str, OverflowColumn],
        extra: str,
        commit: Commit,
        workers: FileWorkers = HERE,
    ) -> Promoted:
        """Move values from the objects in the column `extra` into these columns (by destination name) where they are
        NULL, soft-deleted rows included; a value that is there stays, and so does its object then. In commits of
        their own: cursor and accepted fingerprint stay. Raises Conflict if the table moves meanwhile; what is
        committed by then stays."""
        ...

    def restore_dropped_values(self, ref: Ref, column: str, commit: Commit, workers: FileWorkers = HERE) -> int:
        """Give rows without a value of a restored column the value from before the drop, by key; return how many. Do
        nothing for a table without a key, and where a dropped column keeps its values in the table."""
        ...

    def lookup_rows(self, ref: Ref, keys: pa.Table) -> RowLookup:
        """Return the rows that have one of `keys` (its columns are the key's, by name; no two rows alike), soft-deleted
        ones included. Raises DestinationError for a table that holds no rows yet."""
        ...

    def update_rows(self, ref: Ref, lookup: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        """Change rows that were looked up, in one commit. Raises Conflict, with nothing changed, if the table has
        moved since, Fenced if a later run has claimed it."""
        ...

    def read(self, ref: Ref, names: Sequence[str] = (), filters: Sequence[ColumnFilter] = ()) -> pa.RecordBatchReader:
        """Return the table's rows as Arrow; soft-deleted rows included. Files, and parts of them, without a row that
        passes all filters are not read; rows that do not pass may come. Little is read ahead of what is taken."""
        ...

    def scan(self, ref: Ref, names: Sequence[str]) -> Scan | None:
        """Return a scan of these columns for tasks; None where only this process can read."""
        ...

    def first_rows(self, ref: Ref, limit: int) -> pa.Table:
        """Return at most so many rows as `read` has them, in no order; no more is read and held than they take."""
        ...

    def count_invalid_values(self, ref: Ref, column: str, kind: DataType) -> InvalidValueCount:
        """Count the values of a column that do not fit `kind`; reads that column."""
        ...

    def sample_cast(self, ref: Ref, column: str, kind: DataType, key: Sequence[str], limit: int) -> CastSample:
        """Cast a column's values in the first rows to `kind` and back; reads that column and the key columns only,
        and only the files that hold these rows."""
        ...


class LifecycleFacet(Protocol):
    """The destination itself, and what it keeps beside the tables: by runs that are over, of what was dropped."""

    @property
    def session(self) -> Callable[[], AbstractContextManager[None]] | None:
        """Opens it once for all that is done until the end; others may have to wait for it. None: it is always open."""
        ...

    @property
    def vacuum(self) -> Callable[[bool], tuple[int, int]] | None:
        """Gives back space that can be given back; bytes before and after (dry run: twice the same). None: it does not
        keep the space of what was deleted."""
        ...

    @property
    def clones(self) -> ClonesFacet | None: ...

    @property
    def savepoints(self) -> SavepointsFacet | None: ...

    @property
    def preview(self) -> PreviewFacet | None: ...

    def spark_catalog(self) -> Mapping[str, str]:
        """Return the Spark configuration under which Spark reaches it; without credentials. Empty: Spark only writes
        the staged files."""
        ...

    def spark_table(self, ref: Ref) -> SparkTable | None:
        """Return how Spark reads a table; None where it cannot, or not as this connection has it."""
        ...

    def test(self) -> list[Check]:
        """Create, write, alter and drop a scratch table; return the checks."""
        ...

    def check_writable(self) -> None:
        """Raise ConnectError that names the place and the cause if this machine may not write it; write nothing."""
        ...

    def has_space(self) -> bool:
        """Return whether a few megabytes can be written to the disks of this machine that loads write to; True if
        there are none."""
        ...

    def deferred_create(self) -> AbstractContextManager[None]:
        """Keep tables that are created within the block known to this process alone until rows are committed to
        them. Destinations that cannot do so create them at once. Tables without rows are created at the end; none
        exists if the block ends in an error."""
        ...

    def shared_storage(self) -> StorageFolder | None:
        """Return a folder for files of a connection that belong to no table, reachable by the machines that write
        tables' files; it may not exist yet. None where only the tables' own places are known."""
        ...

    def remove_uncommitted_files(self, ref: Ref, runs: Mapping[str, int]) -> None:
        """Delete what these ended runs (fences by run id) wrote for a table and never committed. Either the table was
        claimed since, or their processes are gone: a run that could still commit would miss its files. Needs no free
        space."""
        ...

    def dropped(self, ref: Ref, source_id: str | None) -> bool:
        """Return whether the table of this name and source id was dropped and is still kept, or is back."""
        ...

    def undrop_report(self, ref: Ref, column: str) -> UndropReport:
        """Report what of a dropped column can be restored."""
        ...

    def purge_expired(self, refs: Iterable[Ref], fence: int) -> list[str]:
        """Purge the expired records of these tables and all expired dropped tables; return their names."""
        ...


class ClonesFacet(Protocol):
    """Tables as they are, kept under another name without the source."""

    def clone_table(self, ref: Ref, place: Ref, commit: Commit) -> int | None:
        """Keep a claimed table's rows readable at `place` as they are now, whatever becomes of the table; return how
        many, or None (and make no clone) if there are none. Do nothing if that clone exists; raises Conflict if the
        name is taken."""
        ...

    def purge_clone(self, place: Ref, fence: int) -> None:
        """Delete a clone that `clone_table` made; do nothing if it is gone. Raises DestinationError for any other
        table."""
        ...


class PreviewFacet(Protocol):
    """A destination beside the destination, to try changes in."""

    def __call__(self, refs: Collection[Ref]) -> AbstractContextManager[Destination]:
        """Open a destination with these tables as they are now. It and all that is written into it are deleted at
        the end, and the destination itself is not written to. Raises Blocked where there is no place for it."""
        ...


class SavepointsFacet(Protocol):
    """Tables that can be put back."""

    def savepoints(self, ref: Ref) -> Sequence[Savepoint]:
        """Return the savepoints, newest first. Raises DestinationError for a table that does not exist or is not
        ours."""
        ...

    def rows_at(self, ref: Ref, snapshot: int) -> int:
        """Return the exact number of rows of a savepoint, soft-deleted ones included. Raises DestinationError if its
        files are gone."""
        ...

    def restore(self, ref: Ref, snapshot: int, base: int, rows: int, commit: Commit) -> None:
        """Restore the rows to a savepoint that has `rows`, in one commit; columns stay as they are, and the snapshot
        before stays readable for undoing. Raises Conflict if the table is at another snapshot than `base`."""
        ...


class MaintenanceFacet(Protocol):
    """Keeping tables fast and small."""

    def layout(self, ref: Ref) -> Layout:
        """Raise DestinationError for a table that is not there or not ours."""
        ...

    def due(self, ref: Ref, how: Maintenance) -> bool:
        """Return whether a closer look is worthwhile, from metadata that is at hand."""
        ...

    def latest_claim(self, ref: Ref) -> int:
        """Return the fence of the table's latest claim."""
        ...

    def maintain(self, ref: Ref, work: MaintenanceSpec) -> Maintained:
        """Compact, expire and clean up; rows and values stay as they are. Raises Fenced if a later run has claimed
        the table, Conflict if it moves again and again: what was committed by then stays."""
        ...


class ViewsFacet(Protocol):
    """Views of ours. What alters a table changes its views in step."""

    @property
    def why_none(self) -> str:
        """Return why this destination's catalog cannot hold views; "" if it can."""
        ...

    def all(self) -> Mapping[Ref, View]:
        """Return all views that instep created."""
        ...

    def put(self, view: View, fence: int) -> None:
        """Make a view of a claimed table, or changes it where it differs, by the table's columns as they are now;
        those that the table has not are left out. Conflict if the name is taken by what is not ours, Fenced if a
        later run has claimed the table."""
        ...

    def drop(self, ref: Ref) -> None:
        """Drop our view of this name; do nothing if there is none."""
        ...


class SharingFacet(Protocol):
    """Several connections' rows in one table."""

    @property
    def why_none(self) -> str:
        """Return the setting that rules out shared tables, in a sentence for people; "" if none does."""
        ...

    @property
    def layouts(self) -> bool:
        """True if shared tables have properties, an order and partitions: those that the latest shard has set."""
        ...

    def part(self, shard: str) -> Destination:
        """Return the destination as one shard loads and reads it: only rows and columns of its own, and their
        records. Tables that the shard lacks do not exist there."""
        ...

    def shared_table(self, ref: Ref) -> SharedTable | None:
        """Return a table with its shards (empty if it is not shared), None if it does not exist."""
        ...


class ShardFacet(Protocol):
    """A connection's view of the other connections that share its tables."""

    @property
    def name(self) -> str: ...

    def reason_not_allowed(self, ref: Ref, steps: Sequence[Step], after: Table | None) -> str:
        """Return why these steps cannot be taken while others share the table; "" if they can."""
        ...

    def as_shared(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps, those that add a table with the text of what becomes of the shared table."""
        ...

    def remarks(self, steps: Sequence[Step]) -> list[str]:
        """Return which of the columns of these steps the other shards lack, in sentences for people."""
        ...
