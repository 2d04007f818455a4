"""What every destination can do. One contract suite (tests/contract/test_destination.py) runs over all.

Destination tables are named by (namespace, name). A destination records beside each column the source id
and source name that it came from, in the same commit as the schema, so that `inspect` pairs by identity and
an interrupted schema change is recognised as done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import pyarrow as pa

from instep.model import Check
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.types import DataType
from instep.schema.planning.guard import Guards
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.plan import Step
from instep.stage.files.place import StorageFolder
from instep.stage.partition import Partitioning
from instep.stage.spec import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ref = tuple[str, str]


@dataclass(frozen=True)
class StagingTarget:
    """Target of staged files of one table: see `stage.spec.StageSpec`. `types`: of columns that are stored as
    a wider type than the accepted one. `partition`: how the rows of files that are adopted are told apart."""

    schema: pa.Schema
    location: str
    quarantine: str
    io: Mapping[str, str] = field(default_factory=dict, repr=False)
    types: Mapping[str, DataType] = field(default_factory=dict)
    partition: Partitioning | None = None


@dataclass(frozen=True)
class PartChange:
    """Record of a schema commit for one shard of a shared table, whose rows have its name in `column`: `table` is the
    table as that shard has it. `anew`:
    its rows are those of another table by now, and the next load replaces them. `moves`: columns whose values go to
    others in this shard's rows, all at once. `seen` is the number of the table's shape that all of this was planned
    from; Conflict if it has another by now."""

    shard: str
    column: str
    fence: int
    table: Table
    seen: int
    anew: bool = False
    moves: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Commit:
    """Record that is written in the same commit as the data. `cursor` is JSON or "", `accepted` the fingerprint of
    the accepted table, `changes` the ids of the schema changes that this commit completes, `part` what becomes of one
    shard of a shared table."""

    run: str
    fence: int
    cursor: str = ""
    accepted: str = ""
    changes: tuple[str, ...] = ()
    part: PartChange | None = None


@dataclass(frozen=True)
class LoadState:
    """Record of a table's last data commit, read from the destination itself. `deleted` tells whether
    rows are marked as deleted."""

    run: str
    fence: int
    cursor: str
    accepted: str
    rows: int
    bytes: int
    files: int
    deleted: bool = False


@dataclass(frozen=True)
class TableSize:
    """The size of a table, from metadata alone."""

    rows: int | None = None
    """Its rows as the last commit left them, soft-deleted ones and earlier versions included; None: never loaded."""
    bytes: int | None = None
    """Bytes at the destination; None: never loaded, or the destination does not tell them of one table."""


@dataclass(frozen=True)
class Merge:
    """Specification of a merge of staged rows into a table.

    `key`: destination column names. `cursor`: the column by which an older version never overwrites a newer
    one, "" without. `complete`: the staged rows are the whole source table, so keys that are not staged are
    deleted at the source. `keys`: files with the key columns only of the whole source table (cursor mode),
    for finding deletes. `asked`: files with the keys that the source was asked for: those among them that are not
    staged are deleted there, nothing is said of any other (destinations whose capabilities have `merges_asked`).
    `deletes`: what to do with the rows found so. `since`: (column, literal): the staged
    rows replace the table's rows from that value on (append with a cursor, no key).
    """

    key: tuple[str, ...]
    cursor: str = ""
    complete: bool = False
    keys: tuple[StagedFile, ...] = ()
    deletes: Literal["soft", "hard", "ignore"] = "soft"
    since: tuple[str, str] | None = None
    unread: tuple[str, ...] = ()
    asked: tuple[StagedFile, ...] = ()


@dataclass(frozen=True)
class LoadOutcome:
    """Rows changed by one load, as far as the destination counts them. Of the keys of a whole source table
    (`Merge.keys`) whose rows were not staged: `absent` are those that no row of the table has, `returned` those whose
    row is marked as deleted, and stays so. Their values are at the source only."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    absent: int = 0
    returned: int = 0


@dataclass(frozen=True)
class UndropReport:
    """Report on restoring a dropped column: `why_not` is the reason why it cannot be restored. `written`: rows written
    since its drop, which have no value in it; `rewritten`: rows of files that were replaced since and have lost theirs.
    `snapshot`: the rows from before the drop are kept, so that both get their values back by key."""

    why_not: str = ""
    written: int = 0
    rewritten: int = 0
    snapshot: bool = False


@dataclass(frozen=True)
class InvalidValueCount:
    """Values of a column that do not fit a type, and one of them."""

    count: int = 0
    example: str = ""


@dataclass(frozen=True)
class CastSample:
    """A cast tried on a sample. Of `sampled` values (NULL is none) `invalid_values` do not fit, and `changed` would be
    another value. `row` is the key of the first such row."""

    sampled: int = 0
    invalid_values: int = 0
    changed: int = 0
    row: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class RowLookup:
    """Rows of a table, all of its columns, found by key: `numbers` are the keys' places in what was asked for, row by
    row. `places` is the destination's own."""

    rows: pa.Table
    numbers: Sequence[int]
    places: object = field(repr=False)


@dataclass(frozen=True)
class RowUpdate:
    """Update of rows: `updated` replace those that `rows` (indexes into `RowLookup.rows`, none twice) names.

    They stand in the same order; `inserted` are new.
    """

    rows: Sequence[int]
    updated: pa.Table
    inserted: pa.Table


@dataclass(frozen=True)
class Fill:
    """Values for rows that have NULL in some columns, found by key. `columns`: the number of its backfill by
    destination column: what a backfill has been through already is known by its number. `values`: staged files with
    the `key`, the columns and the column `meta`, each key once. `holds`: some of their values did not fit, and the
    `meta` of those rows says so. New files are written into `folder`, below the table's location."""

    key: tuple[str, ...]
    columns: Mapping[str, int]
    values: tuple[StagedFile, ...]
    meta: str
    folder: str
    holds: bool = False


@dataclass(frozen=True)
class FillSize:
    """Data files that a fill has to look at (their number, rows and bytes), of how many; those that it has been
    through before are not among them. `why_not` says why the table cannot be filled at all."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    of: int = 0
    why_not: str = ""


@dataclass(frozen=True)
class Filled:
    """Result of a backfill of columns: rows that got a value, files that were rewritten, their bytes. Not `whole`: it
    was told to stop in between, and the next one goes on."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    whole: bool = True


@runtime_checkable
class Fills(Protocol):
    """A destination that can bring values into rows that it has, without taking them out."""

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        """Return what filling these columns touches, from metadata alone."""
        ...

    def fill(
        self,
        session: SparkSession | None,
        ref: Ref,
        fill: Fill,
        commit: Commit,
        told: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> Filled:
        """Rows with NULL in a column get its value; a value that is there is never replaced. In several commits:
        `told` hears rows and bytes written so far, `go_on` is asked after each that
        changed something. Without a session it is done in this process. Cursor and accepted fingerprint stay."""
        ...


class Destination(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def quarantine_days(self) -> int:
        """How long held values are kept after they were held last; 0: for ever."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    def spark_catalog(self) -> Mapping[str, str]:
        """Return the Spark configuration under which Spark reaches it; without credentials."""
        ...

    def test(self) -> list[Check]:
        """Creates, writes, alters and drops a scratch table."""
        ...

    def tables(self) -> list[Ref]:
        """Return all tables that are ours."""
        ...

    def inspect(self, refs: Iterable[Ref]) -> Catalog:
        """Return the tables among `refs` that exist, as they are; `Column.id` and `Table.id` are the recorded source
        ids, `Column.alias` the recorded source name. A table that is not ours raises DestinationError."""
        ...

    def foreign(self, refs: Iterable[Ref]) -> Mapping[Ref, str]:
        """Return the tables among `refs` that exist and are not ours, and what to tell people about them."""
        ...

    def claim(self, ref: Ref, fence: int) -> None:
        """Claim tables: commits with a lower fence are refused (Fenced) from now on. A missing table is ignored."""
        ...

    def remove_uncommitted_files(self, ref: Ref, runs: Mapping[str, int]) -> None:
        """Delete what these runs (their fences by id), which are over, wrote for a claimed table and never
        committed."""
        ...

    def execute(self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit) -> None:
        """All steps of one table in one commit where the format can; `after` is the table they lead to, None for a
        drop."""
        ...

    def undrop_table(self, ref: Ref, table: Table, commit: Commit) -> None:
        """A dropped table comes back under its name, with its rows; nothing if it is back already."""
        ...

    def dropped(self, ref: Ref, source_id: str | None) -> bool:
        """Return whether the table of this name and source id was dropped and is still kept, or is back."""
        ...

    def undrop_report(self, ref: Ref, column: str) -> UndropReport:
        """What of a dropped column can come back."""
        ...

    def refill(self, ref: Ref, column: str, commit: Commit) -> int:
        """Return rows that lack a value of a column that came back get it by key, as it was before the drop; returns
        how many. Nothing for a table without a key."""
        ...

    def count_invalid_values(self, ref: Ref, column: str, kind: DataType) -> InvalidValueCount:
        """Return the values of a column that do not fit `kind`; reads that column."""
        ...

    def sample_cast(self, ref: Ref, column: str, kind: DataType, key: Sequence[str], rows: int) -> CastSample:
        """Cast the values of a column in the first `rows` rows to `kind` and back; reads that column and the key
        columns only, and no more files than hold these rows."""
        ...

    def target(self, ref: Ref) -> StagingTarget: ...

    def state(self, ref: Ref) -> LoadState | None: ...

    def sizes(self, refs: Iterable[Ref]) -> Mapping[Ref, TableSize]:
        """Return the sizes of those of `refs` that exist and are ours, from metadata alone and by few statements."""
        ...

    def append(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome: ...

    def overwrite(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        """Readers see the old rows or the new ones."""
        ...

    def merge(
        self, spark: SparkSession | None, ref: Ref, files: Sequence[StagedFile], merge: Merge, commit: Commit
    ) -> LoadOutcome:
        """Without `spark`, a merge that only Spark can do raises DestinationError."""
        ...

    def lookup_rows(self, ref: Ref, keys: pa.Table) -> RowLookup:
        """Return the rows that have one of `keys` (its columns are the key's, by name; no two rows alike), soft-deleted
        ones included. Raises DestinationError for a table that holds no rows yet."""
        ...

    def update_rows(self, ref: Ref, met: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        """Return changes rows that were met, in one commit; Conflict, and nothing changed, if the table has moved
        since."""
        ...

    def read(self, ref: Ref, columns: Sequence[str] = ()) -> pa.RecordBatchReader:
        """Return the table's rows as Arrow; soft-deleted rows included."""
        ...

    def first_rows(self, ref: Ref, rows: int) -> pa.Table:
        """Return at most so many rows as `read` has them, in no order; no more is read and held than they take."""
        ...


@runtime_checkable
class OnDisk(Protocol):
    """A destination of files that this machine may have no right to write."""

    def check_writable(self) -> None:
        """Raise ConnectError that names the place and the cause if it may not be written; write nothing."""
        ...


@runtime_checkable
class Opens(Protocol):
    """A destination that is open only while something is done with it."""

    def kept_open(self) -> AbstractContextManager[None]:
        """Opened once for all that is done until the end; others may have to wait for it."""
        ...


@runtime_checkable
class DefersCreate(Protocol):
    """A destination whose new tables can appear together with their first rows."""

    def born_with_rows(self) -> AbstractContextManager[None]:
        """Within it a table that is made is known to this process alone until rows are committed to it; at its end
        those that got none are made as they are. Nothing of them is there if it ends in an error."""
        ...


@runtime_checkable
class Guarded(Protocol):
    """A destination whose tables have a layout of their own that stands on columns."""

    def guards(self, refs: Iterable[Ref]) -> Mapping[Ref, Guards]:
        """Return the columns of those of `refs` that exist on which something stands, from metadata alone."""
        ...


@runtime_checkable
class RendersDdl(Protocol):
    """A destination whose steps can be written as SQL."""

    def ddl(self, steps: Sequence[Step]) -> Sequence[str]:
        """Return statements that a person would write for these steps, in order; to read, never executed."""
        ...


@runtime_checkable
class SharesStorage(Protocol):
    """A destination with room for files that belong to a connection and to no table."""

    def room(self) -> StorageFolder | None:
        """Return a folder that machines which write tables' files reach as well; it may not be there yet. None where
        only the tables' own places are known."""
        ...


@runtime_checkable
class Keeps(Protocol):
    """A destination that can keep a table as it is under another name, without writing its rows again."""

    def keep(self, ref: Ref, place: Ref, commit: Commit) -> int | None:
        """A claimed table's rows stay readable at `place` as they are now, whatever becomes of the table; returns how
        many, None (and no copy) if there are none. Nothing if that copy is there; Conflict if the name is taken."""
        ...

    def purge(self, place: Ref, fence: int) -> None:
        """Delete a copy that `keep` made; nothing if it is gone. DestinationError for any other table."""
        ...
