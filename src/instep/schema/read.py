"""What a sync reads of each accepted table while changes may be held (always accepted ∩ selection)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from instep.schema.table import Catalog, Column, Table

Ref = tuple[str, str]


@dataclass(frozen=True)
class ColumnRead:
    """An accepted column and the source column that feeds it; without one it is read as NULL."""

    column: Column
    source: Column | None
    hashed: bool = False


@dataclass(frozen=True)
class TableRead:
    """An accepted table, the source table under its current name, and its columns in accepted order."""

    table: Table
    source: Table
    columns: tuple[ColumnRead, ...]


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
    held: Collection[Ref] = (),
) -> tuple[tuple[TableRead, ...], tuple[Missing, ...]]:
    """The reads of all accepted tables, and those that cannot be read.

    Both catalogs are selected already. A renamed table or column is read under its accepted name, one that is
    not accepted is not read, a removed column is NULL, what is retained is never read. `hashed` answers for the
    source's (schema, table) and column. `held` are accepted tables whose replacement under the same name is not
    accepted: their rows would mix with those of another table.
    """
    found: list[TableRead] = []
    missing: list[Missing] = []
    pairs = pair_tables(accepted.tables, source)
    for table in (t for t in accepted.tables if not t.retained):
        if table.ref in held:
            missing.append(Missing(table, f"{table.path} was replaced by another table of that name: review it"))
        elif (now := pairs.get(table.ref)) is None:
            missing.append(Missing(table, f"{table.path} is not in the source any more, or not readable"))
        else:
            found.append(_table(table, now, hashed))
    return tuple(found), tuple(missing)


def _table(table: Table, source: Table, hashed: Callable[[Ref, str], bool]) -> TableRead:
    pairs = pair_columns(table, source)

    def read(column: Column) -> ColumnRead:
        now = pairs.get(column.name)
        return ColumnRead(column, now, bool(now) and hashed(source.ref, (now or column).name))

    return TableRead(table, source, tuple(read(c) for c in table.live))


def pair_tables(accepted: Iterable[Table], source: Catalog) -> dict[Ref, Table]:
    """Accepted (schema, name) to source table: by id, then by name among those that no id has claimed."""
    live = [t for t in accepted if not t.retained]
    by_id = {t.id: t for t in source.tables if t.id is not None}
    pairs = {t.ref: by_id[t.id] for t in live if t.id in by_id}
    taken = {t.ref for t in pairs.values()}
    for table in live:
        now = source.get(table.ref)
        if table.ref not in pairs and now is not None and now.ref not in taken:
            pairs[table.ref] = now
    return pairs


def pair_columns(accepted: Table, source: Table) -> dict[str, Column]:
    """Accepted name to source column. Ids count within one table id only; there, one name with two ids is
    two columns. Otherwise the name decides."""
    comparable = accepted.id is not None and accepted.id == source.id
    by_id = {c.id: c for c in source.columns if comparable and c.id is not None}
    pairs = {c.name: by_id[c.id] for c in accepted.live if c.id in by_id}
    taken = {c.name for c in pairs.values()}
    for column in accepted.live:
        now = source.by_name.get(column.name)
        if column.name in pairs or now is None or now.name in taken:
            continue
        if not (comparable and column.id is not None and now.id is not None):
            pairs[column.name] = now
    return pairs
