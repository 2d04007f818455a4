"""Keeping tables fast and small; for destinations that do not do it by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from instep.destinations.base import Commit, Ref
from instep.schema.catalog.layout import TableLayout
from instep.schema.catalog.partition import PartitionTerm
from instep.schema.catalog.types import DataType
from instep.schema.maintenance import Maintenance
from instep.schema.planning.aliases import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    """Result or preview of a table's maintenance: its files, delete files, bytes and manifests before and after.
    `rewritten`: data files that were put together; `bytes_rewritten`: of them. `snapshots` that were expired,
    `removed` files that went with them, `orphans` and their bytes. `notes` say what was left and why."""

    files_before: int = 0
    files: int = 0
    bytes_before: int = 0
    bytes: int = 0
    deletes_before: int = 0
    deletes: int = 0
    manifests_before: int = 0
    manifests: int = 0
    rewritten: int = 0
    bytes_rewritten: int = 0
    snapshots: int = 0
    removed: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def something(self) -> bool:
        """Whether anything was done."""
        merged = self.manifests < self.manifests_before
        return bool(self.rewritten or self.snapshots or self.removed or self.orphans or merged)


def _no_session() -> None:
    return None


def _always() -> bool:
    return True


@dataclass(frozen=True)
class Upkeep:
    """One table's maintenance. `run` names whose it is, commits are made under `fence`. `live`: when the oldest run
    that is alive began (milliseconds since 1970, None: there is none); no file that is younger is an orphan. `deep`:
    orphans are looked for. `moving`: files under an earlier partition spec are rewritten. `session` is asked for
    when there is much to write; `go_on` between commits."""

    how: Maintenance
    run: str
    fence: int
    live: int | None = None
    deep: bool = True
    dry_run: bool = False
    moving: bool = False
    session: Callable[[], SparkSession | None] = field(default=_no_session, repr=False)
    told: Callable[[int, int], None] = field(default=lambda rows, size: None, repr=False)
    go_on: Callable[[], bool] = field(default=_always, repr=False)


@runtime_checkable
class Maintains(Protocol):
    """A destination whose tables need maintenance."""

    @property
    def maintenance(self) -> tuple[str, ...]:
        """What it consists of, for people."""
        ...

    def layout(self, ref: Ref) -> Layout:
        """DestinationError for a table that is not there or not ours."""
        ...

    def due(self, ref: Ref, how: Maintenance) -> bool:
        """Return whether it is worth looking closer, from metadata that is at hand."""
        ...

    def held_by(self, ref: Ref) -> int:
        """Return the fence of the table's latest claim."""
        ...

    def maintain(self, ref: Ref, work: Upkeep) -> Maintained:
        """Rows and values stay as they are. Raises Fenced if a later run has claimed the table, Conflict if it moves
        again and again: what was committed by then stays."""
        ...


@runtime_checkable
class Vacuums(Protocol):
    """A destination that is one file, which keeps the space of what was deleted."""

    def vacuum(self, *, dry_run: bool) -> tuple[int, int]:
        """Give back what can be given back; bytes before and after (dry run: twice the same)."""
        ...


@dataclass(frozen=True)
class Savepoint:
    """The table as it was from `at` on, known by its snapshot's `id`. `run` made it ("" if it was not one of ours), and
    `cursor` is what it recorded ("" for none: the whole table is read). `rows`: about how many. `later`: the table's
    columns that came after it, which have no value in it. `why_not`: why the table cannot be put back to it. `made`:
    when its rows were written, which was before `at` if the table was put back to it."""

    id: int
    at: datetime
    run: str
    rows: int
    cursor: str
    current: bool = False
    later: tuple[str, ...] = ()
    why_not: str = ""
    made: datetime | None = None


@runtime_checkable
class HasSavepoints(Protocol):
    """A destination whose tables can be put back."""

    def savepoints(self, ref: Ref) -> Sequence[Savepoint]:
        """Newest first. Raises DestinationError for a table that is not there or not ours."""
        ...

    def rows_at(self, ref: Ref, snapshot: int) -> int:
        """Exact number of rows of a savepoint; soft-deleted ones included. DestinationError if its files are gone."""
        ...

    def restore(self, ref: Ref, snapshot: int, base: int, rows: int, commit: Commit) -> None:
        """Put the rows back to a savepoint that has `rows`, in one commit; columns stay as they are, the snapshot
        before stays readable for undoing. Conflict if the table stands on another snapshot than `base`."""
        ...


@runtime_checkable
class KeepsDropped(Protocol):
    """A destination that keeps for some time what was dropped, so that it can be taken back."""

    def forget(self, refs: Iterable[Ref], fence: int) -> list[str]:
        """Let go of what these tables keep, and of all dropped tables, whose time is over; answers their names."""
        ...


@runtime_checkable
class HoldsViews(Protocol):
    """A destination with views of ours. What alters a table there changes its views in step."""

    @property
    def why_no_views(self) -> str:
        """Why this destination's catalog cannot hold views; "" if it can."""
        ...

    def views(self) -> Mapping[Ref, View]:
        """Return all that are ours."""
        ...

    def put_view(self, view: View, fence: int) -> None:
        """Make a view of a claimed table, or changes it where it differs, by the table's columns as they are now;
        those that the table has not are left out. Conflict if the name is taken by what is not ours, Fenced if a later
        run has claimed the table."""
        ...

    def drop_view(self, ref: Ref) -> None:
        """Drop a view of ours; do nothing if there is none of this name."""
        ...


@runtime_checkable
class Partitions(Protocol):
    """A destination whose tables have partitions that settings may say. One that is no more than that gives other ones
    to a table that has rows when it is loaded whole."""

    def layouts(self, refs: Iterable[Ref]) -> Mapping[Ref, TableLayout]:
        """Return the layouts set by settings, present or coming with the next full load, of those `refs` that exist and
        wait for no new generation."""
        ...

    def partition_fault(self, term: PartitionTerm, kind: DataType) -> str:
        """Why a column of this type cannot be partitioned so; "" if it can."""
        ...


@runtime_checkable
class LaidOut(Partitions, Protocol):
    """One whose tables have properties and an order of rows as well, all of which can change at any time."""

    def property_fault(self, name: str) -> str:
        """Why settings cannot set a property; "" if they can."""
        ...
