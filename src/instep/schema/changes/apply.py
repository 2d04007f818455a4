"""The catalog after changes: each record applied to the state that the ones before it lead to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import assert_never

from instep.errors import SchemaError
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.changes.kinds import (
    AccessLost,
    Change,
    ColumnAdded,
    ColumnAltered,
    ColumnComment,
    ColumnDefault,
    ColumnNarrowed,
    ColumnNullability,
    ColumnRemoved,
    ColumnRenamed,
    ColumnReordered,
    ColumnRetyped,
    ColumnWidened,
    CursorChanged,
    CursorRemoved,
    DestinationDrifted,
    KeyChanged,
    KeyRemoved,
    NameCollided,
    Ref,
    SchemaAdded,
    SchemaRemoved,
    TableAdded,
    TableComment,
    TableRemoved,
    TableRenamed,
    TableReplaced,
)

TableEdit = (
    ColumnAdded
    | ColumnRemoved
    | ColumnAltered
    | ColumnReordered
    | KeyChanged
    | KeyRemoved
    | CursorChanged
    | CursorRemoved
    | TableComment
)


def apply(changes: Iterable[Change], catalog: Catalog) -> Catalog:
    """Return `catalog` after `changes`, applied in order; neighbouring renames are simultaneous. What a change does
    not mention is kept: aliases (but a renamed object gets a new one), generations, retained columns (behind the
    others); a replaced table is taken as it is. Raises SchemaError, naming table and column, for a change that does
    not fit the catalog: what it names is missing or is not as the change found it."""
    tables = dict(catalog.by_ref)
    for batch in _batches(changes):
        _apply(tables, batch)
    return Catalog.of(tables.values())


def _batches(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Yield changes one by one, but neighbouring renames of tables, or of one table's columns, together."""
    for rename, group in groupby(changes, _renames):
        batch = list(group)
        yield from [batch] if rename else ([change] for change in batch)


def _renames(change: Change) -> object:
    if isinstance(change, ColumnRenamed):
        return change.table
    return isinstance(change, TableRenamed)


def _apply(tables: dict[Ref, Table], batch: list[Change]) -> None:
    match change := batch[0]:
        case TableRenamed():
            _rename_tables(tables, [c for c in batch if isinstance(c, TableRenamed)])
        case ColumnRenamed():
            renames = [c for c in batch if isinstance(c, ColumnRenamed)]
            tables[change.table] = _rename_columns(_found(tables, change.table), renames)
        case TableAdded():
            _add(tables, change.after)
        case TableRemoved():
            _found(tables, change.before.ref)
            del tables[change.before.ref]
        case TableReplaced():
            old = _found(tables, change.before.ref)
            tables[old.ref] = change.after
        case SchemaAdded() | SchemaRemoved() | DestinationDrifted() | NameCollided() | AccessLost():
            pass
        case _:
            tables[change.table] = _edit(_found(tables, change.table), change)


def _found(tables: dict[Ref, Table], ref: Ref) -> Table:
    if ref not in tables:
        raise SchemaError(f"table {'.'.join(ref)} is not in the catalog", hint="detect the changes again")
    return tables[ref]


def _add(tables: dict[Ref, Table], table: Table) -> None:
    if table.ref in tables:
        raise SchemaError(f"table {table.path} is in the catalog already", hint="detect the changes again")
    tables[table.ref] = table


def _rename_tables(tables: dict[Ref, Table], renames: Sequence[TableRenamed]) -> None:
    """Rename tables; all names are freed before the first is taken, so that swaps and chains need no temporary name."""
    moved = [replace(_found(tables, r.before.ref), schema=r.after.schema, name=r.after.name, alias="") for r in renames]
    for r in renames:
        tables.pop(r.before.ref, None)
    for table in moved:
        _add(tables, table)


def _rename_columns(table: Table, renames: Sequence[ColumnRenamed]) -> Table:
    names = {r.before.name: r.after.name for r in renames}
    for name in names:
        _column(table, name)
    columns = tuple(replace(c, name=names[c.name], alias="") if c.name in names else c for c in table.columns)
    if len({c.name for c in columns}) != len(columns):
        raise SchemaError(f"table {table.path} would have two columns named alike after renaming {_list(names)}")
    return replace(table, columns=columns, cursor=names.get(table.cursor or "", table.cursor))


def _edit(table: Table, change: TableEdit) -> Table:
    match change:
        case ColumnAdded():
            return _add_column(table, change.after, change.position)
        case ColumnRemoved():
            return _remove_column(table, change.before.name)
        case ColumnReordered():
            # columns that the change does not name (held back or not yet there) keep their places
            named = {n: _column(table, n) for n in change.after}
            order = (n for n in change.after if not named[n].retained)
            return _arrange(table, [named[next(order)] if c.name in named else c for c in table.live])
        case KeyChanged():
            return _set_key(table, change.before, change.after)
        case KeyRemoved():
            return _set_key(table, change.before, ())
        case CursorChanged():
            return _set_cursor(table, change.before, change.after)
        case CursorRemoved():
            return _set_cursor(table, change.before, None)
        case TableComment():
            return replace(table, comment=change.after)
        case ColumnRenamed():
            return _rename_columns(table, [change])
        case _:
            return _alter(table, change)


def _alter(table: Table, change: ColumnAltered) -> Table:
    column, before, after = _column(table, change.before.name), change.before, change.after
    match change:
        case ColumnWidened() | ColumnNarrowed() | ColumnRetyped():
            _same(table, column, column.type, before.type)
            column = replace(column, type=after.type, native=after.native, note=after.note)
        case ColumnNullability():
            _same(table, column, column.nullable, before.nullable)
            column = replace(column, nullable=after.nullable)
        case ColumnDefault():
            _same(table, column, column.default, before.default)
            column = replace(column, default=after.default)
        case ColumnComment():
            _same(table, column, column.comment, before.comment)
            column = replace(column, comment=after.comment)
        case ColumnRenamed():
            return _rename_columns(table, [change])
        case _:
            assert_never(change)
    return replace(table, columns=tuple(column if c.name == column.name else c for c in table.columns))


def _same(table: Table, column: Column, actual: object, expected: object) -> None:
    if actual != expected:
        raise SchemaError(
            f"column {table.path}.{column.name} is {actual}, not {expected} as the change found it",
            hint="detect the changes again",
        )


def _column(table: Table, name: str) -> Column:
    if name not in table.by_name:
        raise SchemaError(f"table {table.path} has no column {name}", hint="detect the changes again")
    return table.by_name[name]


def _arrange(table: Table, live: Iterable[Column]) -> Table:
    """Return the table with its retained columns behind the live ones."""
    return replace(table, columns=(*live, *(c for c in table.columns if c.retained)))


def _add_column(table: Table, column: Column, position: int) -> Table:
    """Return the table with the column at a position; one behind the end is the end, as columns before it may be
    blocked."""
    if old := table.by_name.get(column.name):
        state = "keeps a retained column" if old.retained else "has a column"
        raise SchemaError(f"table {table.path} {state} {column.name} already", hint="undrop or rename it first")
    live = list(table.live)
    live.insert(position, column)
    return _arrange(table, live)


def _remove_column(table: Table, name: str) -> Table:
    if _column(table, name).key or name == table.cursor:
        use = "key" if table.by_name[name].key else "cursor"
        raise SchemaError(
            f"column {table.path}.{name} is in the {use}", hint=f"decide about the removal of the {use} first"
        )
    return replace(table, columns=tuple(c for c in table.columns if c.name != name))


def _set_key(table: Table, before: tuple[str, ...], after: tuple[str, ...]) -> Table:
    if table.key != before:
        raise SchemaError(
            f"the key of {table.path} is {_list(table.key)}, not {_list(before)} as the change found it",
            hint="detect the changes again",
        )
    for name in after:
        _column(table, name)
    places = {name: place for place, name in enumerate(after, 1)}
    columns = tuple(
        c if c.key == places.get(c.name, 0) else replace(c, key=places.get(c.name, 0)) for c in table.columns
    )
    return replace(table, columns=columns)


def _set_cursor(table: Table, before: str | None, after: str | None) -> Table:
    if table.cursor != before:
        raise SchemaError(
            f"the cursor of {table.path} is {table.cursor}, not {before} as the change found it",
            hint="detect the changes again",
        )
    if after is not None:
        _column(table, after)
    return replace(table, cursor=after)


def _list(names: Iterable[str]) -> str:
    return f"({', '.join(names)})"
