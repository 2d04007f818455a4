"""States that a table was in and can be put back to; for destinations that keep them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from instep.destinations.base import Commit, Ref


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
class KeepsSavepoints(Protocol):
    """A destination whose tables can be put back."""

    def savepoints(self, ref: Ref) -> Sequence[Savepoint]:
        """Newest first. Raises DestinationError for a table that is not there or not ours."""
        ...

    def rows_at(self, ref: Ref, snapshot: int) -> int:
        """Exact number of rows of a savepoint; soft-deleted ones included. DestinationError if its files are gone."""
        ...

    def restore(self, ref: Ref, snapshot: int, base: int, rows: int, commit: Commit) -> None:
        """Puts the rows back to a savepoint that has `rows`, in one commit; columns stay as they are, the snapshot
        before stays readable for undoing. Conflict if the table stands on another snapshot than `base`."""
        ...


@runtime_checkable
class KeepsDropped(Protocol):
    """A destination that keeps for some time what was dropped, so that it can be taken back."""

    def forget(self, refs: Iterable[Ref], fence: int) -> list[str]:
        """Lets go of what these tables keep, and of all dropped tables, whose time is over; answers their names."""
        ...
