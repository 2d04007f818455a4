"""What was switched on, hashed or shown since a table was loaded last, by instep.yml or by command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from instep.schema.kinds import ColumnAdded, Ref
from instep.schema.policy import Policy, decide
from instep.schema.read import ColumnRead, TableRead
from instep.schema.table import Column, Table
from instep.schema.types import String

What = Literal["on", "hashed", "clear", "waiting"]
"""`waiting`: to be hashed, in clear until the type of hashes is let in."""


@dataclass(frozen=True)
class LoadedColumn:
    """How a destination table has a column since its last load: `read` by it or left out, its values `hashed` or in
    clear. The id is the source's."""

    name: str
    id: str | None = None
    read: bool = True
    hashed: bool = False


@dataclass(frozen=True)
class LoadedFilter:
    """Which rows a table has since its last load, and its path at the source when that was said."""

    where: str = ""
    path: str = ""


@dataclass(frozen=True)
class Turned:
    """A column of an accepted table that is chosen otherwise than at the last load."""

    table: Table
    column: Column
    what: What

    @property
    def path(self) -> str:
        return f"{self.table.path}.{self.column.name}"

    @property
    def why(self) -> str:
        return f"{self.path} is {self.what}"


def loaded_columns(read: TableRead, before: Sequence[LoadedColumn] = ()) -> tuple[LoadedColumn, ...]:
    """The columns after a load of this read. One that is left out keeps the values that it had."""
    return tuple(_loaded(one.column, one.source is not None, _holds_hashes(one), before) for one in read.columns)


def _holds_hashes(one: ColumnRead) -> bool:
    """Hashes are text: while that type is not let in, the table keeps what it has."""
    return one.hashed and one.column.type == String()


def _loaded(column: Column, read: bool, hashed: bool, before: Sequence[LoadedColumn]) -> LoadedColumn:
    old = None if read else _known(before, column)
    return LoadedColumn(column.name, column.id, read, old.hashed if old else hashed)


def left_out(read: TableRead, before: Sequence[LoadedColumn]) -> tuple[LoadedColumn, ...]:
    """`before`, with those marked that this read leaves out: once its rows land, the table lacks values."""
    out = {_known(before, one.column) for one in read.columns if one.source is None}
    return tuple(replace(c, read=False) if c in out else c for c in before)


def turned(read: TableRead, before: Sequence[LoadedColumn]) -> Iterator[Turned]:
    """Columns that were not there at the last load are no matter of selection."""
    for one in read.columns:
        old = _known(before, one.column)
        if one.source is None or old is None:
            continue
        if one.hashed and not _holds_hashes(one):
            if not old.hashed:
                yield Turned(read.table, one.column, "waiting")
        elif old.hashed != one.hashed:
            yield Turned(read.table, one.column, "hashed" if one.hashed else "clear")
        elif not old.read:
            yield Turned(read.table, one.column, "on")


def _known(before: Sequence[LoadedColumn], column: Column) -> LoadedColumn | None:
    """By name, which holds on another server too; a name that is new is known by its id."""
    named = next((c for c in before if c.name == column.name), None)
    return named or next((c for c in before if c.id and c.id == column.id), None)


def is_read_again(table: Ref, column: Column, what: What, policy: Policy, tags: tuple[str, ...] = ()) -> bool:
    """Whether the whole table is read for it: always to hash or show what is loaded already; for a column that is on
    again unless policy backfills nothing."""
    if what != "on":
        return what != "waiting"
    return decide(ColumnAdded(table, column, 0), policy, explicit="on", tags=tags).modifiers.backfill != "none"
