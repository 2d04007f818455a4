"""`instep tables`: the tables at the destination with their sizes and last runs; columns and first rows of one."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import OfConnection, OnlyTable, examples
from instep.cli.backend import open_backend
from instep.cli.context import emit, say
from instep.cli.text import text_of
from instep.errors import argument
from instep.operations.everyday.tables import MOST_ROWS, TablesRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from instep.cli.screen import Screen
    from instep.operations.everyday.tables import LastTableRun, TableColumn, TablePreview, TablesResult, TableSummary

LONGEST = 40
"""Characters of a value that a preview shows in a terminal; JSON has it whole."""


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "instep tables",
            "instep tables public.order",
            "instep tables public.order --preview 10",
            "instep --output json tables -c shop",
        )
    )(tables)


def tables(
    table: OnlyTable = None,
    connection: OfConnection = None,
    preview: Annotated[
        int | None,
        typer.Option("--preview", min=1, max=MOST_ROWS, help="Show this many rows of TABLE; not over --server."),
    ] = None,
) -> None:
    """List the tables at the destination: rows, bytes, last run and more.

    With a table, its columns too. Rows and bytes come from metadata: no row is read without --preview. Rows do not
    pass through a server: use --preview or `instep query` where the project is.
    """
    if preview and table is None:
        raise typer.BadParameter("name the table whose rows are shown: instep tables TABLE --preview N")
    request = TablesRequest(table=table or "", preview=preview or 0)
    with open_backend() as backend:
        result: TablesResult = backend.operations.run(backend.connection(connection), request)
    for note in result.notes:
        say(note, style="yellow")
    emit(_document(result), lambda out: _show(out, result))


def _document(result: TablesResult) -> dict[str, Any]:
    shown = result.preview
    rows = [dict(zip(shown.columns, row, strict=True)) for row in shown.rows] if shown else []
    preview = {"columns": list(shown.columns), "rows": rows} if shown else None
    return asdict(replace(result, preview=None)) | {"preview": preview}


def _show(out: Screen, result: TablesResult) -> None:
    if not result.tables:
        out.print("no tables: `instep plan` shows what a sync would load")
        return
    _grid(out, TABLE_HEAD, [_line(one) for one in result.tables])
    for table in result.tables:
        for text, style in _remarks(table):
            out.write(f"{table.table}: {text}", style)
    if result.columns:
        out.print()
        _grid(out, COLUMN_HEAD, [_column(one) for one in result.columns])
    if result.preview is not None:
        out.print()
        _preview(out, result.preview)


TABLE_HEAD = ("table", "destination", "mode", "key", "rows", "bytes", "columns", "last run")
COLUMN_HEAD = ("column", "at the source", "at the destination", "null", "key", "status", "since")
NUMBERS = ("rows", "bytes", "columns")


def _line(summary: TableSummary) -> list[str]:
    table = summary.table if summary.source in (None, summary.table) else f"{summary.table} (source: {summary.source})"
    mode = f"{summary.mode or '-'}{', history' if summary.history else ''}"
    numbers = ("-" if summary.rows is None else f"{summary.rows:,}", _size(summary.bytes), f"{summary.columns:,}")
    return [table, summary.destination or "-", mode, ", ".join(summary.key) or "-", *numbers, _last(summary.last_run)]


def _last(last: LastTableRun | None) -> str:
    if last is None:
        return "never"
    return f"{last.kind} {last.status}" + (f" {last.at:%Y-%m-%d %H:%M} UTC" if last.at else "")


def _remarks(summary: TableSummary) -> Iterator[tuple[str, str]]:
    if summary.error:
        yield "; ".join(line.strip() for line in summary.error.splitlines()), "red"
    if summary.paused is not None:
        yield f"paused: {summary.paused}", "yellow"
    if summary.quarantined:
        yield (
            f"{summary.quarantined:,} value(s) or rows in quarantine: instep quarantine list {argument(summary.table)}",
            "yellow",
        )
    for column in summary.backfills:
        yield f"backfill pending: {'the whole table' if column == '*' else column}", "yellow"
    if summary.note:
        yield summary.note, "dim"


def _column(table_column: TableColumn) -> list[str]:
    name = (
        table_column.column
        if table_column.destination in (None, table_column.column)
        else f"{table_column.column} -> {table_column.destination}"
    )
    types, since = (
        (table_column.source_type or "-", table_column.destination_type or "-"),
        f"{table_column.since:%Y-%m-%d}" if table_column.since else "-",
    )
    return [
        name,
        *types,
        "yes" if table_column.nullable else "no",
        str(table_column.key) if table_column.key else "",
        table_column.status,
        since,
    ]


def _size(size: int | None) -> str:
    if size is None:
        return "-"
    return f"{size:,} B" if size < 10_000 else f"{size / 2**10:,.1f} KB" if size < 2**20 else f"{size / 2**20:,.1f} MB"


def _grid(out: Screen, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    grid = Grid(box=None, header_style="bold", padding=(0, 1 if out.narrow else 2, 0, 0))
    for name in head:
        grid.add_column(cell(name), justify="right" if name in NUMBERS else "left")
    for row in rows:
        grid.add_row(*map(cell, row))
    out.print(grid)


def _preview(out: Screen, shown: TablePreview) -> None:
    from rich.table import Column
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    grid = Grid(*(Column(cell(name)) for name in shown.columns), box=None, header_style="bold", padding=(0, 2, 0, 0))
    for row in shown.rows:
        grid.add_row(*(cell("NULL", "dim") if value is None else cell(_cut(text_of(value))) for value in row))
    out.print(grid)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
