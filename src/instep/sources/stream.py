"""Sources that send operations, which cannot be read again: their runs come in segments.

A run's stream is taken group by group; while one is at hand, the source's snapshot shows what it brought. The state
behind a group counts once everything in it is at the destination.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from instep.schema.planning.projection import TableRead
from instep.sources.base import Discovery
from instep.stage.spec import Chunk

Ref = tuple[str, str]
Granularity = Literal["run", "restart", "table"]
"""`run`: all tables are sent together, from one state. `restart`: they are, and any of them can be sent from its first
row on beside the others. `table`: each can be read by itself."""

GIVEN = "__given"
"""A column of changed rows: the JSON list of the source columns that were given."""


def _every(ref: Ref) -> bool:
    return True


@dataclass(frozen=True)
class StreamScope:
    """The tables of a run, where the source reads each by itself."""

    only: frozenset[str] | None = None
    """Tables to read (paths; None: all)."""
    again: frozenset[str] = frozenset()
    """These are sent from their first row on."""
    selected: Callable[[Ref], bool] = _every
    """Answers whether a table is read at all."""

    def takes(self, ref: Ref) -> bool:
        return self.selected(ref) and (self.only is None or ".".join(filter(None, ref)) in self.only)


EVERYTHING = StreamScope()


@dataclass(frozen=True)
class ReceivedRows:
    """Rows that a source has sent in this run, and expects to send in all (0: it does not say)."""

    rows: int
    expected: int = 0


ReceivedCallback = Callable[[Mapping[str, ReceivedRows]], None]
"""Hears about once a second what has come by table (its path at the source), and under "" what has come in all."""


@dataclass(frozen=True)
class TableCounts:
    """Operations on one table; `truncated`: what stood before some of them is gone."""

    upserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncated: bool = False

    @property
    def count(self) -> int:
        return self.upserts + self.updates + self.deletes

    def __bool__(self) -> bool:
        return self.truncated or self.count > 0

    def __add__(self, more: TableCounts) -> TableCounts:
        return TableCounts(
            self.upserts + more.upserts,
            self.updates + more.updates,
            self.deletes + more.deletes,
            self.truncated or more.truncated,
        )


@runtime_checkable
class Operations(Protocol):
    """A snapshot of one group: its `chunks` are the rows that replace those of their key."""

    def counts(self, ref: Ref) -> TableCounts: ...

    def place_files(self, read: TableRead) -> None:
        """Move the files of rows to where the rows say, as far as `read` gives that. For loads only, which come
        after it. Raises StageError if one cannot be moved."""
        ...

    def notes(self, read: TableRead) -> Mapping[str, str]:
        """Return the destination's column names by the names under which the source speaks of a row's values; empty if
        it says nothing about them. If not, `chunks` of whole rows yield its notes behind their columns."""
        ...

    def deleted_keys(self, read: TableRead, key: str) -> list[Chunk]:
        """Return chunks with the keys of deleted rows, under `Chunk.table = key`."""
        ...

    def changed(self, read: TableRead, key: str) -> list[Chunk]:
        """Return chunks with rows of which only some columns were given: `GIVEN` comes before the others."""
        ...


@dataclass(frozen=True)
class StreamFailure:
    """Why a table is not complete though the stream went on to its end. `transient`: it may be when it is read again
    later."""

    why: str
    transient: bool = False


class Stream(Protocol):
    """One run of the source."""

    def next(self) -> bool:
        """Take the next group; False after the last one, when there is an empty one. Blocks; raises ReadError with the
        source's own error."""
        ...

    @property
    def tables(self) -> Mapping[Ref, TableCounts]:
        """Counts of the group by table, quarantined operations included."""
        ...

    @property
    def received_tables(self) -> Set[Ref]:
        """The tables that the group itself has operations on: what was held before is left out."""
        ...

    def starts(self, ref: Ref) -> bool:
        """Return whether it sends the table from its first row on."""
        ...

    @property
    def failed(self) -> Mapping[Ref, StreamFailure]:
        """Return why tables are not complete though the stream went on to its end; known behind the last group."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """The connector's warnings for people."""
        ...

    @property
    def number(self) -> int:
        """Return the number of the group's last segment; greater for the empty group."""
        ...

    @property
    def left(self) -> frozenset[Ref]:
        """The tables that `leave` was told last, in this run or one before."""
        ...

    def leave(self, refs: frozenset[Ref]) -> None:
        """Record that operations on these tables were neither loaded nor made pending."""
        ...

    def make_pending(self, refs: frozenset[Ref]) -> None:
        """Make the group's operations on these tables pending until they are released."""
        ...

    def done(self, loaded: frozenset[Ref], *, run: str, fence: int) -> None:
        """Save the state: the operations on these tables are at the destination, and all others are pending or not
        selected."""
        ...


@runtime_checkable
class MigratedSource(Protocol):
    """A source whose tables another product has read before."""

    def accepted_elsewhere(self) -> Discovery | None:
        """Return the catalog that was accepted there; None if there is none, or if it was adopted."""
        ...

    def adopted(self) -> None:
        """Drop that catalog: it is the accepted one now."""
        ...


@runtime_checkable
class Streams(Protocol):
    """A source that is a stream; outside of a run its snapshots show no rows."""

    def granularity(self) -> Granularity:
        """Return what can be read by itself, as far as the last saved state permits."""
        ...

    def stream(
        self,
        *,
        from_start: bool,
        scope: StreamScope,
        on_counts: Callable[[Any], None],
        on_received: ReceivedCallback,
        log: Callable[[Any], None],
    ) -> AbstractContextManager[Stream]:
        """Return a run from the last saved state on, or `from_start`. `scope` counts as far as the source can read
        tables by themselves. `on_counts` hears its operations so far, `on_received` the rows of sources that
        count them as they come, `log` what it says. All are called from another thread."""
        ...

    def waits(self, ref: Ref) -> bool:
        """Return whether operations on the table are held."""
        ...

    def forget(self, ref: Ref, column: str) -> None:
        """Forget a column: one that does not come any more is no column of the source, unless it comes again."""
        ...
