"""The records that go in and out of a destination. What it can do with them is said in `destinations.facets`.

Destination tables are named by (namespace, name). A destination records beside each column the source id
and source name that it came from, in the same commit as the schema, so that `inspect` pairs by identity and
an interrupted schema change is recognised as done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from instep.schema.catalog.catalog import Table
from instep.schema.catalog.types import DataType
from instep.schema.maintenance import Maintenance
from instep.stage.partition import Partitioning
from instep.stage.spec import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ref = tuple[str, str]
SparkStart = Callable[[], "SparkSession | None"]
"""Gives the Spark session, which may have to start first; None where there is none to be had."""


@dataclass(frozen=True)
class StagingTarget:
    """Target of staged files of one table: see `stage.spec.StageSpec`. `types`: of columns that are stored as
    a wider type than the accepted one. `partition`: how the rows of files that are adopted are told apart.
    `merge_compression`: how files are compressed that a merge reads once."""

    schema: pa.Schema
    location: str
    quarantine: str
    io: Mapping[str, str] = field(default_factory=dict, repr=False)
    types: Mapping[str, DataType] = field(default_factory=dict)
    """Types of columns that are stored as a wider type than the accepted one."""
    partition: Partitioning | None = None
    merge_compression: str = "zstd"


@dataclass(frozen=True)
class PartChange:
    """Record of a schema commit for one shard of a shared table, whose rows have its name in `column`: `table` is
    the table as that shard has it."""

    shard: str
    column: str
    fence: int
    table: Table
    seen: int
    """The number of the table's shape that all of this was planned from; Conflict if it has another now."""
    replaces_rows: bool = False
    """True if its rows are now those of another table, and the next load replaces them."""
    moves: tuple[tuple[str, str], ...] = ()
    """Columns whose values go to others in this shard's rows, all at once."""


@dataclass(frozen=True)
class Commit:
    """Record that is written in the same commit as the data."""

    run: str
    fence: int
    cursor: str = ""
    """JSON or ""."""
    accepted: str = ""
    """The fingerprint of the accepted table."""
    changes: tuple[str, ...] = ()
    """The ids of the schema changes that this commit completes."""
    part: PartChange | None = None
    """Change of one shard of a shared table."""


@dataclass(frozen=True)
class LoadState:
    """Record of a table's last data commit, read from the destination itself."""

    run: str
    fence: int
    cursor: str
    accepted: str
    rows: int
    bytes: int
    files: int
    deleted: bool = False
    """True if rows are marked as deleted."""
    version: str = ""
    """The number of the table's rows and columns, another one after every commit, whoever makes it; "" where the
    destination has none."""


@dataclass(frozen=True)
class TableSize:
    """The size of a table, from metadata alone."""

    rows: int | None = None
    """Its rows as the last commit left them, soft-deleted ones and earlier versions included; None: never loaded."""
    bytes: int | None = None
    """Bytes at the destination; None: never loaded, or the destination does not tell them of one table."""


@dataclass(frozen=True)
class SparkTable:
    """A way for a Spark session to read a table without this product."""

    format: Literal["iceberg", "delta"]
    name: str
    """Its quoted name, the catalog's included; for Delta its place."""
    catalog: Mapping[str, str] = field(default_factory=dict)
    """The session's settings of its catalog."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings that the session has only while it opens the catalog."""


@dataclass(frozen=True)
class Merge:
    """Specification of a merge of staged rows into a table.

    `key`: destination column names. `cursor`: the column by which an older version never overwrites a newer
    one, "" if none. `complete`: the staged rows are the whole source table, so keys that are not staged are
    deleted at the source. `keys`: files with the key columns only of the whole source table (cursor mode),
    for finding deletes. `requested`: files with the keys that the source was asked for: those among them that are not
    staged are deleted there, nothing is said of any other (destinations whose capabilities have `merges_requested`).
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
    requested: tuple[StagedFile, ...] = ()

    @property
    def leaves_others(self) -> bool:
        """Return whether rows of the table whose key is neither staged nor requested stay, whatever they are."""
        return not (self.complete or self.keys or self.since)


MergePath = Literal["process", "alike", "parts", "spark", "database"]
"""The place of a merge: in this process; there if most of them are alike, otherwise in parts; in parts, by
tasks of Spark or one after the other; by Spark alone; in the database."""


def expected_file(rows: int, size: int) -> StagedFile:
    """Return a stand-in for files that are not staged yet, to choose the path of a merge by."""
    return StagedFile("", 0, "", rows, size, b"")


@dataclass(frozen=True)
class LoadOutcome:
    """Rows changed by one load, as far as the destination counts them. Of the keys of a whole source table
    (`Merge.keys`) whose rows were not staged: `absent` are those that no row of the table has, `returned` those
    whose row is marked as deleted, and stays so. Their values are at the source only."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    absent: int = 0
    returned: int = 0
    version: str = field(default="", compare=False)
    """Version of the table by this very commit, as `LoadState` has it; "" where the destination has none, or nothing
    was committed."""


@dataclass(frozen=True)
class UndropReport:
    """Report on restoring a dropped column: `why_not` is the reason why it cannot be restored."""

    why_not: str = ""
    written: int = 0
    """Rows written since its drop, which have no value in it."""
    rewritten: int = 0
    """Rows of files that were replaced since and have lost theirs."""
    snapshot: bool = False
    """The rows from before the drop are kept, so that both get their values back by key."""


@dataclass(frozen=True)
class InvalidValueCount:
    """Values of a column that do not fit a type, and one of them."""

    count: int = 0
    example: str = ""


@dataclass(frozen=True)
class CastSample:
    """A cast tried on a sample. Of `sampled` values (NULL is none) `invalid_values` do not fit, and `changed` would
    be another value."""

    sampled: int = 0
    invalid_values: int = 0
    changed: int = 0
    row: Mapping[str, object] = field(default_factory=dict, repr=False)
    """The key of the first such row."""


@dataclass(frozen=True)
class RowLookup:
    """Rows of a table, all of its columns, found by key: `numbers` are the keys' places in what was asked for, row
    by row."""

    rows: pa.Table
    numbers: Sequence[int]
    places: object = field(repr=False)
    """The destination's own."""


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
    """Values for rows that have NULL in some columns, found by key."""

    key: tuple[str, ...]
    columns: Mapping[str, int]
    """The number of its backfill by destination column: what a backfill has been through already is known by its
    number."""
    values: tuple[StagedFile, ...]
    """Staged files with the `key`, the columns and the column `meta`, each key once."""
    meta: str
    folder: str
    """New files are written into `folder`, below the table's location."""
    holds: bool = False
    """Some of their values did not fit, and the `meta` of those rows says so."""


@dataclass(frozen=True)
class FillSize:
    """Data files that a fill has to look at (their number, rows and bytes), of how many; those that it has been
    through before are not among them."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    of: int = 0
    why_not: str = ""
    """Reason why the table cannot be filled at all."""


@dataclass(frozen=True)
class BackfillResult:
    """Result of a backfill of columns: rows that got a value, files that were rewritten, their bytes. Not `whole`: it
    was told to stop in between, and the next one goes on."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    whole: bool = True


@dataclass(frozen=True)
class Layout:
    """A table's files, from metadata alone: data files and their bytes, delete files, snapshots that are kept, when it
    was maintained last. None: the destination does not tell."""

    files: int | None = None
    bytes: int | None = None
    deletes: int | None = None
    snapshots: int | None = None
    maintained: datetime | None = None


@dataclass(frozen=True)
class Maintained:
    """Result of maintaining a table, or its preview: files, delete files, bytes and manifests before and after."""

    files_before: int = 0
    files: int = 0
    bytes_before: int = 0
    bytes: int = 0
    deletes_before: int = 0
    deletes: int = 0
    manifests_before: int = 0
    manifests: int = 0
    rewritten: int = 0  # data files that were compacted
    bytes_rewritten: int = 0
    snapshots: int = 0  # expired
    removed: int = 0  # files that went with expired snapshots
    orphans: int = 0
    orphan_bytes: int = 0
    notes: tuple[str, ...] = ()  # what was left as it is, and why

    @property
    def has_effect(self) -> bool:
        """True if anything was done."""
        merged = self.manifests < self.manifests_before
        return bool(self.rewritten or self.snapshots or self.removed or self.orphans or merged)


def _no_session() -> None:
    return None


def _always() -> bool:
    return True


def _silent(rows: int, size: int) -> None:
    pass


@dataclass(frozen=True)
class FileWorkers:
    """Workers for large work on a table's files: tasks of the `session`, or this process where there is none.

    The session is opened when there is much to do. `on_progress` gets the rows and bytes written so far.
    """

    session: SparkStart = field(default=_no_session, repr=False)
    on_progress: Callable[[int, int], None] = field(default=_silent, repr=False)


HERE = FileWorkers()
"""This process, and nobody hears of it."""


@dataclass(frozen=True)
class MaintenanceSpec:
    """One table's maintenance. `run` names whose it is, commits are made under `fence`. `live`: when the oldest run
    that is alive began (milliseconds since 1970, None: there is none); no file that is younger is an orphan. `deep`:
    orphans are looked for. `moving`: files under an earlier partition spec are written again. `session` is asked for
    when there is much to write; `go_on` between commits."""

    how: Maintenance
    run: str
    fence: int
    live: int | None = None
    deep: bool = True
    dry_run: bool = False
    moving: bool = False
    session: Callable[[], SparkSession | None] = field(default=_no_session, repr=False)
    on_progress: Callable[[int, int], None] = field(default=_silent, repr=False)
    go_on: Callable[[], bool] = field(default=_always, repr=False)


@dataclass(frozen=True)
class Savepoint:
    """The table as it was from `at` on, known by its snapshot's `id`."""

    id: int
    at: datetime
    run: str
    """Run that made it ("" if it was not one of ours); `cursor` is what that run recorded ("" for none: the whole
    table is read)."""
    rows: int
    """About how many."""
    cursor: str
    current: bool = False
    later: tuple[str, ...] = ()
    """The table's columns that came after it, which have no value in it."""
    why_not: str = ""
    """Why the table cannot be put back to it."""
    made: datetime | None = None
    """Time when its rows were written, which was before `at` if the table was restored to it."""
