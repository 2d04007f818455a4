"""`instep table shards`: which shard of a shared table has which column, and which one is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.context import emit, open_app
from instep.cli.help import examples
from instep.errors import InstepError

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.control.shards import SharedTable
    from instep.schema.planning.shards import ShardedColumn

EXAMPLES = examples("instep table shards", "instep table shards shop.orders --all")
SHOWN = 12
"""Shards up to which each gets a column; more are counted, and those that lack something named."""


def shards(
    path: Annotated[
        str, typer.Argument(metavar="NAMESPACE.TABLE", help="A shared table, as NAMESPACE.TABLE at the destination.")
    ] = "",
    all_columns: Annotated[bool, typer.Option("--all", help="Also list columns that all shards have alike.")] = False,
) -> None:
    """List shared tables: each shard's columns and types, and shards behind.

    Opens neither source nor destination.
    """
    from instep.control.shards import as_data, shared_tables

    with open_app() as app:
        known = shared_tables(app.project, app.store)
    found = [t for t in known if not path or t.name == path]
    if path and not found:
        names = ", ".join(t.name for t in known) or "none: no connection has a `shard`, or none was synced yet"
        raise InstepError(f"no shared table {path}", hint=f"shared tables: {names}")
    emit({"tables": [as_data(t) for t in found]}, lambda out: _show(out, found, all_columns or bool(path)))


def _show(out: Screen, found: list[SharedTable], every: bool) -> None:
    if not found:
        out.write("no shared tables: set `shard` on connections, see docs/guides/shards.md")
    for table in found:
        same = "" if table.differing else ": all columns alike"
        out.write(f"{table.name} ({table.destination}), {len(table.shards)} shards{same}", style="bold")
        _show_shards(out, table)
        columns = table.columns if every else table.differing
        if columns:
            (_grid if len(table.shards) <= SHOWN else _list)(out, columns)


def _show_shards(out: Screen, table: SharedTable) -> None:
    if table.missing:
        out.write(f"  without the table: {', '.join(table.missing)}", style="yellow")
    for shard in table.shards:
        behind = [f"last run {shard.status or 'never'}"] if shard.status != "done" else []
        behind += [f"{shard.waiting} changes wait"] if shard.waiting else []
        if behind:
            text = f"  {shard.name} ({shard.connection}): schema version {shard.version}, {', '.join(behind)}"
            out.write(text, style="yellow")


def _grid(out: Screen, columns: tuple[ShardedColumn, ...]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    grid = Grid(box=None, pad_edge=True)
    for name in ("column", "shared type", *columns[0].shards):
        grid.add_column(cell(name))
    for column in columns:
        kinds = ((s, k) for s, k in column.shards.items())
        own = (cell(f"{k}{'~' * (s in column.retained)}") if k else cell("-", "yellow") for s, k in kinds)
        grid.add_row(cell(column.name), cell(str(column.type)), *own)
    out.print(grid)


def _list(out: Screen, columns: tuple[ShardedColumn, ...]) -> None:
    for column in columns:
        kinds = sorted({str(kind) for kind in column.shards.values() if kind})
        lacks = f"; missing in {', '.join(column.lacking)}" if column.lacking else ""
        out.write(f"  {column.name}: {column.type} of {', '.join(kinds)}{lacks}")
