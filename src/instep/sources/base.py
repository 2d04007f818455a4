"""The source protocol. One contract suite (tests/contract/test_source.py) runs over all sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from instep.model import Check
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.types import DataType
from instep.schema.planning.projection import TableRead
from instep.stage.spec import Chunk, Reader


@dataclass(frozen=True)
class TableStats:
    """The source's own statistics: estimated rows and bytes, no scan."""

    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Discovery:
    """Catalog of the source. `denied` names tables (and columns as (schema, table, column)) that exist and may
    not be read; `broken` are those of them that lack no right but are no tables as they are now, such as files that
    cannot be parsed: a sync that should load one fails it. `identity` is what ids are valid within (system identifier
    and database oid), "" without ids; `proves_absence` tells whether a table that is not listed is really gone. Of a
    stream, by table: `silent` are columns of the catalog that do not come any more, `begun` those whose first value is
    among the rows at hand."""

    catalog: Catalog
    fingerprint: str
    stats: Mapping[tuple[str, str], TableStats] = field(default_factory=dict)
    denied: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    identity: str = ""
    proves_absence: bool = False
    silent: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    begun: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    broken: frozenset[tuple[str, ...]] = frozenset()
    unread: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Why a part of a table is not read that nobody has left out, such as files of a format without a reader. The
    tables need not be in the catalog."""


def object_path(ref: tuple[str, ...]) -> str:
    """Return a table, or what has no table, for people."""
    return ".".join(filter(None, ref))


@dataclass(frozen=True)
class CursorRange:
    """Rows with `lower <= column <= upper` (None: open), or every row when `column` is None.

    Bounds are text forms in the source's own syntax, as `Snapshot.cursor_bounds` returned them.
    """

    column: str | None = None
    lower: str | None = None
    upper: str | None = None


@dataclass(frozen=True)
class CursorBounds:
    """The cursor column at the read point: its maximum (None: no rows) and how many rows have NULL in it."""

    upper: str | None
    nulls: int
    lost: str = ""
    """Tells why the rows since the last sync cannot be told from others."""
    notes: tuple[str, ...] = ()
    """Remarks on the rows, for people."""
    fresh: bool = False
    """The destination has none of the rows from the lower bound on."""
    whole: str = ""
    """Tells why rows below the lower bound may be others now."""


class Snapshot(Protocol):
    """One consistent read point. Valid until the context that made it ends."""

    @property
    def reader(self) -> Reader: ...

    def discover(self) -> Discovery:
        """Return the catalog as of this snapshot."""
        ...

    def chunks(self, read: TableRead, key: str, rows: CursorRange, *, columns: Sequence[str] = ()) -> list[Chunk]:
        """Return queries that together yield each row of the range once, largest first, under `Chunk.table = key`.
        `columns` restricts the accepted columns to these names (key-only reads); empty means all that have a source."""
        ...

    def query_types(self, read: TableRead) -> Mapping[str, DataType]:
        """Return the type that the query yields for each accepted column that has a source, by accepted name."""
        ...

    def cursor_bounds(
        self, read: TableRead, column: str, after: str | None, lookback: float
    ) -> tuple[str | None, CursorBounds]:
        """Return (`after` moved back by `lookback` seconds or units, the bounds now)."""
        ...

    def count(self, read: TableRead) -> int:
        """Return the exact number of rows as of this snapshot."""
        ...

    def changed_tables(self, catalog: Catalog) -> frozenset[tuple[str, str]]:
        """Return tables whose schema, read again now outside the snapshot, is not that of `catalog`."""
        ...


@runtime_checkable
class Filters(Protocol):
    """A snapshot that reads only the rows for which `TableRead.where` is true, wherever it reads rows."""

    @property
    def dialect(self) -> str:
        """The filter's language, as SQL parsers call it."""
        ...

    def filter_error(self, read: TableRead) -> str:
        """Return why the source cannot evaluate the filter, "" if it can. Reads no rows."""
        ...


@runtime_checkable
class BatchLookup(Protocol):
    """A snapshot that finds out of many tables at once what `chunks` has to know of each."""

    def look_up(self, refs: Sequence[tuple[str, str]]) -> None:
        """Look source tables up whose chunks will be asked for; one that cannot be looked up now is left to that."""
        ...


@runtime_checkable
class Versioned(Protocol):
    """A snapshot of a source that can prove that the rows of a table have not changed."""

    def versions(self, reads: Sequence[TableRead], before: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
        """Return the version of each table's rows by source table, given those that earlier snapshots have returned.

        Whoever reads the table at two snapshots with the same version gets the same rows. A table of which that
        cannot be proven is left out.
        """
        ...


@runtime_checkable
class Definitions(Protocol):
    """A snapshot that tells what the values of rows rest on beside the rows: a statement that changes it gives rows
    other values, and moves no cursor."""

    def definitions(
        self, reads: Sequence[TableRead], before: Mapping[tuple[str, str], Mapping[str, str]]
    ) -> Mapping[tuple[str, str], Mapping[str, str]]:
        """Return the definition of each source table, to be compared as `FollowedTable` compares a shape, given those
        of its last load. A table of which nothing is known is left out."""
        ...


@runtime_checkable
class WeakKeys(Protocol):
    """A snapshot of a source in which several rows of a table may share its primary key, or have keys that differ there
    and are equal once they have the column's type."""

    def weak_key(self, table: Table) -> str:
        """Return why the primary key of a table, which has one, may not hold for the rows that a read yields, in words
        that follow `the key id,`; "" if it holds."""
        ...


NOT_GUARANTEED = "which the source does not guarantee"
ANOTHER_FORM = "whose values may differ at the source in their form alone"
"""Reasons for a weak key."""


@runtime_checkable
class Repeatable(Protocol):
    """A snapshot that several tasks may read, and read again."""

    @property
    def reason_not_repeatable(self) -> str:
        """Return why they could see other rows than the first one, "" if they cannot."""
        ...


@runtime_checkable
class Copyable(Protocol):
    """A source whose rows can be read from a copy, where it shows no snapshot to several tasks otherwise."""

    def copied_snapshot(self) -> AbstractContextManager[Snapshot]: ...


class WholeCatalog(ABC):
    """Mixin for sources that have to read their catalog to tell whether it is unchanged."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Snapshot]: ...

    def fingerprint(self) -> str:
        """Return a digest of the whole catalog, which is read for it."""
        return self.discover().fingerprint

    def discover(self) -> Discovery:
        with self.snapshot() as snapshot:
            return snapshot.discover()


class Source(Protocol):
    """A database or a connector. `default_schema` needs no mention in destination names."""

    @property
    def kind(self) -> str: ...

    @property
    def default_schema(self) -> str: ...

    def test(self) -> list[Check]: ...

    def fingerprint(self) -> str:
        """Return a digest of the whole selected catalog made in the source: equal means unchanged."""
        ...

    def discover(self) -> Discovery: ...

    def snapshot(self) -> AbstractContextManager[Snapshot]: ...
