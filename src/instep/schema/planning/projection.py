"""What a sync reads of each accepted table while changes may be held (always accepted ∩ selection)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.changes.diff import pair, pair_columns

Ref = tuple[str, str]


@dataclass(frozen=True)
class ColumnRead:
    """An accepted column and the source column that feeds it; without one it is read as NULL."""

    column: Column
    source: Column | None
    hashed: bool = False


@dataclass(frozen=True)
class TableRead:
    """An accepted table, the source table under its current name, and its columns in accepted order. `where`: a row
    filter as SQL of the source, "" for all rows."""

    table: Table
    source: Table
    columns: tuple[ColumnRead, ...]
    where: str = ""

    @property
    def condition(self) -> str:
        """The filter as a part of a longer condition."""
        return f"({self.where})" if self.where else ""


@dataclass(frozen=True)
class Missing:
    """An accepted table that this sync skips, and why; the other tables go on."""

    table: Table
    why: str


def reads(
    accepted: Catalog,
    source: Catalog,
    *,
    hashed: Callable[[Ref, str], bool] = lambda ref, column: False,
    paused: Collection[Ref] = (),
) -> tuple[tuple[TableRead, ...], tuple[Missing, ...]]:
    """The reads of all accepted tables, and those that cannot be read.

    Both catalogs are selected already. A renamed table or column is read under its accepted name, one that is
    not accepted is not read, a removed column is NULL, what is retained is never read. `hashed` answers for the
    source's (schema, table) and column. A table that was replaced under its name is missing until that is
    accepted: its rows would mix with those of another table. `paused` names more such tables, where the ids do not
    tell.
    """
    pairs = pair(accepted, source)
    gone = {t.ref: f"{t.path} is not in the source any more, or not readable" for t in pairs.removed}
    again = [t for t, _ in pairs.replaced] + [t for t, _ in pairs.same if t.ref in paused]
    gone |= {t.ref: f"{t.path} was replaced by another table of that name" for t in again}
    same = sorted((p for p in pairs.same if p[0].ref not in gone), key=lambda p: p[0].ref)
    found = tuple(_table(before, now, hashed) for before, now in same)
    return found, tuple(Missing(t, gone[t.ref]) for t in accepted.tables if t.ref in gone)


def _table(table: Table, source: Table, hashed: Callable[[Ref, str], bool]) -> TableRead:
    pairs = {before.name: now for before, now in pair_columns(table, source).same}

    def read(column: Column) -> ColumnRead:
        now = pairs.get(column.name)
        return ColumnRead(column, now, bool(now) and hashed(source.ref, (now or column).name))

    return TableRead(table, source, tuple(read(c) for c in table.live))


def pair_tables(accepted: Iterable[Table], source: Catalog) -> dict[Ref, Table]:
    """Accepted (schema, name) to source table: by id, then by name, another table of that name included."""
    pairs = pair(Catalog.of(accepted), source)
    return {before.ref: after for before, after in (*pairs.same, *pairs.replaced)}
