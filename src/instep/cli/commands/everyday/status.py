"""`instep status` and `query`: the state of the connections, and the rows at a destination."""

from __future__ import annotations

from dataclasses import asdict
from itertools import count as counted
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.backend import open_backend
from instep.cli.commands.everyday.old_names import old_name_line
from instep.cli.commands.set_up.log import line
from instep.cli.context import emit, open_app, options, say
from instep.cli.help import examples
from instep.cli.text import text_of
from instep.operations.queries.connections import ListStatus

if TYPE_CHECKING:
    from instep.cli.screen import Screen


ROWS = 100
"""Rows of a query that are shown to people."""
JSON_ROWS = 10_000
"""Rows of a query that are told as JSON."""


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("instep status --output json"))(status)
    app.command(epilog=examples('instep query "select status, count(*) from shop.order group by 1"'))(query)


def status() -> None:
    """Show each connection's last run, pauses, open changes and failed tables."""
    with open_backend() as backend:
        found = [asdict(one) for one in backend.items(ListStatus())]
    emit({"connections": found}, lambda out: _show_status(out, found))


def _tables(one: dict[str, Any]) -> int:
    """Return how many tables there are: a pattern that fits nothing is listed beside them and is none."""
    from instep.model import PATTERN

    return sum(t["mode"] != PATTERN for t in one["tables"])


def _maintained(found: list[dict[str, Any]]) -> str:
    last = max(found, key=lambda m: m["at"])
    return (
        f"maintained: {len(found)} table(s), last {last['table']} at {last['at']:%Y-%m-%d %H:%M} UTC "
        f"({last['files_before']:,} -> {last['files']:,} files)"
    )


_SWITCHED = {"on": "was re-enabled", "off": "was disabled"}


def _then(one: dict[str, Any]) -> str:
    if one["is"] == "waiting":
        return "will be hashed; existing rows stay in clear until its new type is approved and loaded"
    then = "the next sync reloads its table" if one["reads_table"] else "existing rows were not backfilled"
    return f"{_SWITCHED.get(one['is'], 'was ' + one['is'])} after the last load; {then}"


def _lack(one: dict[str, Any]) -> str:
    return f"existing rows lack its values until they change; to backfill them run `{one['command']}`"


def _show_status(out: Screen, found: list[dict[str, Any]]) -> None:
    for c in found:
        run = c["last_run"]
        last = f"last {run['kind']} {run['status']} at {run['started']:%Y-%m-%d %H:%M:%S} UTC" if run else "never run"
        out.print(c["connection"], style="bold", end="")
        label = f" ({c['schema_label']})" if c["schema_label"] else ""
        out.print(f"  schema version {c['schema_version']}{label}, {_tables(c)} tables, {last}")
        if c["waiting_changes"]:
            out.print(
                f"  {c['waiting_changes']} change(s) wait for a review: run `instep changes list`", style="yellow"
            )
        for pause in c["pauses"]:
            what = ".".join(filter(None, pause["table"])) if pause["table"] else "the connection"
            out.write(f"  paused: {what}: {pause['reason']}", "yellow")
        for b in c["backfills"]:
            what = ".".join(filter(None, (*b["table"], b["column"])))
            waits = f"; {b['waits']}" if b["waits"] else ""
            out.write(f"  pending backfill of {what}: {b['why']}{waits}", "yellow")
        for one in c["reselected"]:
            out.write(f"  {one['column']} {_then(one)}", "yellow")
        for one in c["partial"]:
            out.write(f"  {one['table']}.{one['column']}: {_lack(one)}", "yellow")
        if c["maintained"]:
            out.write(f"  {_maintained(c['maintained'])}", "dim")
        if c["log"]:
            out.write(f"  log: {line(c['log'])}", "yellow" if c["log"]["trouble"] else "dim")
        for copy in c["copies"]:
            out.write(f"  copy {'.'.join(copy['place'])}: {copy['rows']:,} rows, {copy['why']}", "dim")
        for one in c["old_names"]:
            out.write(f"  {old_name_line(one)}", "yellow" if one["trouble"] else "dim")
        for t in c["tables"]:
            if t["status"] != "done":
                why = "; ".join(line.strip() for line in t["error"].splitlines())
                out.write(f"  {'.'.join(filter(None, t['table']))}: {t['status']}: {why}", "red")
        for table, quarantined in c["quarantine"].items():
            out.write(
                f"  {table}: {quarantined:,} value(s) or rows in quarantine: run `instep quarantine list {table}`",
                "yellow",
            )


def query(
    sql: Annotated[str, typer.Argument(help="A SELECT over the destination's tables, named NAMESPACE.TABLE.")],
    destination: Annotated[
        str | None, typer.Option("--destination", "-d", help="The destination; optional if there is only one.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Return at most this many rows; JSON has at least 10,000.")
    ] = ROWS,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write all rows to this .parquet or .csv file.")
    ] = None,
) -> None:
    """Query a destination in SQL.

    Only the tables that the query names are read (DuckDB over Arrow).
    """
    from instep.sync.query import ask, write_rows

    if out is not None:
        with open_app() as app:
            count = write_rows(app.destination(destination), sql, out)
        emit({"file": str(out), "rows": count}, lambda screen: screen.print(f"{count:,} rows written to {out}"))
        return
    most = max(limit, JSON_ROWS) if options.output == "json" else limit
    with open_app() as app:
        answer = ask(app.destination(destination), sql, most)
    columns = _distinct(answer.columns)
    rows = [dict(zip(columns, row, strict=True)) for row in answer.rows]
    document = {"columns": columns, "rows": rows, "more": answer.more}
    emit(document, lambda screen: _grid(screen, answer.columns, answer.rows))
    if answer.more:
        say(f"there are more than these {most:,} rows: --limit N for more, --out FILE.parquet writes all of them")


def _distinct(names: list[str]) -> list[str]:
    """Columns of one name get a number, so that no value is lost in JSON."""
    found: list[str] = []
    for name in names:
        again = (f"{name}_{number}" for number in counted(1))
        found.append(name if name not in found else next(n for n in again if n not in found and n not in names))
    return found


def _grid(out: Screen, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    grid = Grid(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        grid.add_column(cell(column))
    for row in rows:
        grid.add_row(*(cell("NULL", "dim") if v is None else cell(text_of(v)) for v in row))
    out.print(grid)
