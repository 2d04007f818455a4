"""`instep status` and `query`: the state of the connections, and the rows at a destination.

`instep table old-names`: what readers can still call a table and its columns, until when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import count as counted
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from instep.cli.arguments import OfConnection, Table, examples
from instep.cli.backend import open_backend
from instep.cli.commands.set_up.log import line
from instep.cli.context import console, emit, one_connection, open_app, options, say, write_json
from instep.cli.render.live import waiting
from instep.cli.text import text_of
from instep.errors import InstepError, argument
from instep.operations.queries.work import ListStatus, ListTableStatus
from instep.operations.values import TableOutcomeStatus, duration_text

if TYPE_CHECKING:
    from instep.backends.protocol import Backend
    from instep.cli.screen import Screen
    from instep.schema.planning.aliases import OldName
    from instep.store.catalogs.connection_status import ConnectionStatus, LastMaintenance, TableLoad


ROWS = 100
"""Rows of a query that are shown to people."""
JSON_ROWS = 10_000
"""Rows of a query that are told as JSON."""


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("instep status --output json", "instep status --check"))(status)
    app.command(epilog=examples('instep query "select status, count(*) from shop.order group by 1"'))(query)


def status(
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 2 if a table is late against its freshness target.")
    ] = False,
) -> None:
    """Show last runs, pauses, open changes, failed and late tables by connection."""
    from instep.backends.calls import status_document

    with open_backend() as backend:
        statuses: list[ConnectionStatus] = backend.items(ListStatus())
        if options.output == "json":
            write_json({"connections": [status_document(backend, one) for one in statuses]})
        else:
            _show_statuses(console(), [(one, _not_loaded(backend, one)) for one in statuses])
    if check and any(one.freshness_counts.get("late") for one in statuses):
        raise typer.Exit(2)


def _not_loaded(backend: Backend, status: ConnectionStatus) -> list[TableLoad]:
    """Return the tables that the last run did not load. Most connections have none and are not asked for them."""
    if not (status.unmatched or status.outcomes.keys() - {"done"}):
        return []
    others = tuple(one for one in get_args(TableOutcomeStatus) if one != "done")
    loads: list[TableLoad] = backend.items(ListTableStatus(status.connection, status=others))
    return loads


_STATES = {"on_time": "on time", "paused": "paused", "not_loaded": "not loaded yet"}
LATE_TABLES = 10
"""Late tables of a connection that are shown to people."""


def _show_freshness(out: Screen, tables: list[dict[str, Any]], numbers: Mapping[str, int]) -> None:
    """Print one line a late table, then one for the others."""
    late = [one for one in tables if one["state"] == "late"]
    for one in late[:LATE_TABLES]:
        out.write(
            f"  {one['table']} is late since {one['due']:%Y-%m-%d %H:%M} UTC: fresh as of "
            f"{one['as_of']:%Y-%m-%d %H:%M} UTC, target {duration_text(one['target'])}",
            "red",
        )
    if (more := numbers.get("late", 0) - LATE_TABLES) > 0:
        out.write(f"  and {more} more late tables: --output json has them", "red")
    counts = [f"{numbers[state]} {words}" for state, words in _STATES.items() if numbers.get(state)]
    if counts:
        out.write(f"  freshness: {', '.join(counts)}", "dim")


def _maintained(count: int, last: LastMaintenance) -> str:
    return (
        f"maintained: {count} table(s), last {last.table} at {last.at:%Y-%m-%d %H:%M} UTC "
        f"({last.files_before:,} -> {last.files:,} files)"
    )


_SWITCHED = {"on": "was re-enabled", "off": "was disabled"}


def _then(connection: str, one: dict[str, Any]) -> str:
    if one["is"] == "retained":
        from instep.suggest import stays_in_clear

        return f"is to be hashed: {stays_in_clear(connection, one['column'])}"
    if one["is"] == "waiting":
        return "will be hashed; existing rows stay in clear until its new type is approved and loaded"
    then = "the next sync reloads its table" if one["reads_table"] else "existing rows were not backfilled"
    return f"{_SWITCHED.get(one['is'], 'was ' + one['is'])} after the last load; {then}"


def _lack(one: dict[str, Any]) -> str:
    return f"existing rows lack its values until they change; to backfill them run `{one['command']}`"


def _show_rest(out: Screen, c: Mapping[str, Any], name: str, what: str) -> None:
    """Print how many more there are than the status lists."""
    if number := c["more"].get(name):
        out.write(f"  and {number:,} more {what}", "yellow")


def _show_pending(out: Screen, c: Mapping[str, Any]) -> None:
    """Print what is paused or still to be loaded."""
    for pause in c["pauses"]:
        what = ".".join(filter(None, pause["table"])) if pause["table"] else "the connection"
        out.write(f"  paused: {what}: {pause['reason']}", "yellow")
    _show_rest(out, c, "pauses", "pauses")
    for b in c["backfills"]:
        what = ".".join(filter(None, (*b["table"], b["column"])))
        waits = f"; {b['waits']}" if b["waits"] else ""
        out.write(f"  pending backfill of {what}: {b['why']}{waits}", "yellow")
    _show_rest(out, c, "backfills", "pending backfills")
    for one in c["reselected"]:
        out.write(f"  {one['column']} {_then(c['connection'], one)}", "yellow")
    _show_rest(out, c, "reselected", "columns that were switched")
    for one in c["partial"]:
        out.write(f"  {one['table']}.{one['column']}: {_lack(one)}", "yellow")
    _show_rest(out, c, "partial", "columns whose values existing rows lack")


def _failure(error: str, command: str) -> str:
    """Return in one line why a run or the load of a table failed, and the command that tries it again."""
    why = "; ".join(line.strip() for line in error.splitlines())
    return f"{why}; once this is mended run `{command}`" if command else why


def _show_statuses(out: Screen, statuses: Sequence[tuple[ConnectionStatus, Sequence[TableLoad]]]) -> None:
    for status, not_loaded in statuses:
        c = asdict(status)
        run = c["last_run"]
        last = f"last {run['kind']} {run['status']} at {run['started']:%Y-%m-%d %H:%M:%S} UTC" if run else "never run"
        out.print(c["connection"], style="bold", end="")
        label = f" ({c['schema_label']})" if c["schema_label"] else ""
        out.print(f"  schema version {c['schema_version']}{label}, {sum(status.outcomes.values())} tables, {last}")
        if run and run["error"]:
            out.write(f"  {_failure(run['error'], c['next_command'])}", "red")
        if c["waiting_changes"]:
            out.print(
                f"  {c['waiting_changes']} change(s) wait for a review: run `instep changes list`", style="yellow"
            )
        _show_freshness(out, c["freshness"], c["freshness_counts"])
        _show_pending(out, c)
        if status.last_maintained:
            out.write(f"  {_maintained(status.maintained, status.last_maintained)}", "dim")
        if c["log"]:
            out.write(f"  log: {line(c['log'])}", "yellow" if c["log"]["trouble"] else "dim")
        for copy in c["copies"]:
            out.write(f"  copy {'.'.join(copy['place'])}: {copy['rows']:,} rows, {copy['why']}", "dim")
        _show_rest(out, c, "copies", "copies")
        for one in c["old_names"]:
            out.write(f"  {old_name_line(one)}", "yellow" if one["trouble"] else "dim")
        _show_rest(out, c, "old_names", "old names")
        for load in not_loaded:
            why = _failure(load.error, load.next_command)
            out.write(f"  {'.'.join(filter(None, load.table))}: {load.status}: {why}", "red")
        for place, why in c["unread"].items():
            out.write(f"  {place}: {why}", "yellow")
        for table, quarantined in c["quarantine"].items():
            out.write(
                f"  {table}: {quarantined:,} value(s) or rows in quarantine: run "
                f"`instep quarantine list {argument(table)}`",
                "yellow",
            )
        _show_rest(out, c, "quarantine", f"tables with entries in quarantine; all have {c['quarantined']:,}")


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

    Reads only the columns, files and row groups that the query needs (DuckDB over Arrow).
    """
    from instep.sync.query import ask, write_rows

    if out is not None:
        with open_app() as app, waiting():
            count = write_rows(app.destination(destination), sql, out)
        emit({"file": str(out), "rows": count}, lambda screen: screen.print(f"{count:,} rows written to {out}"))
        return
    most = max(limit, JSON_ROWS) if options.output == "json" else limit
    with open_app() as app, waiting():
        answer = ask(app.destination(destination), sql, most)
    columns = _distinct(answer.columns)
    rows = [dict(zip(columns, row, strict=True)) for row in answer.rows]
    document = {"columns": columns, "rows": rows, "more": answer.more}
    emit(document, lambda screen: _grid(screen, answer.columns, answer.rows))
    if answer.more:
        say(f"there are more than these {most:,} rows: --limit N for more, --out FILE.parquet writes all of them")


def _distinct(names: list[str]) -> list[str]:
    """Return the names with a number added to repeated ones, so that no value is lost in JSON."""
    distinct: list[str] = []
    for name in names:
        again = (f"{name}_{number}" for number in counted(1))
        distinct.append(
            name if name not in distinct else next(n for n in again if n not in distinct and n not in names)
        )
    return distinct


def _grid(out: Screen, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    grid = Grid(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        grid.add_column(cell(column))
    for row in rows:
        grid.add_row(*(cell("NULL", "dim") if v is None else cell(text_of(v)) for v in row))
    out.print(grid)


EXAMPLES = examples(
    "instep table old-names public.order total --keep 30d", "instep table old-names public.order --drop"
)


def old_names(
    path: Table,
    name: Annotated[str, typer.Argument(metavar="NAME", help="One old name; the default is all of the table.")] = "",
    connection: OfConnection = None,
    drop: Annotated[bool, typer.Option("--drop", help="End them now.")] = False,
    keep: Annotated[str | None, typer.Option("--keep", help="Keep them for this long from now: 12h, 30d, 8w.")] = None,
) -> None:
    """List a table's old names and their views; end or extend them."""
    from instep.control.reviews import until
    from instep.sync.aliases import of_table, set_old_names_until

    if drop and keep is not None:
        raise InstepError("--drop and --keep cannot be combined", hint="give one of them")
    with open_app() as app:
        context = app.sync_context(one_connection(app, connection))
        names = of_table(context, path, name)
        if names and (drop or keep is not None):
            set_old_names_until(context, names, None if drop else until(keep, None, app.store.old_names.now()))
            names = of_table(context, path)
    from instep.sync.status import old_names_data

    data = {"connection": context.name, "table": path, "old_names": old_names_data(names)}
    emit(data, lambda out: say_old_names(out, names) if names else out.write("no old names"))


def old_name_line(one: dict[str, Any]) -> str:
    """Return one of `old_names_data`, for people."""
    stands_for = f"{one['table']}.{one['column']}" if one["column"] else one["table"]
    where = f"not shown: {one['trouble']}" if one["trouble"] else f"in {one['view']}"
    return f"old name {one['name']} for {stands_for}, {where}, until {one['until']:%Y-%m-%d %H:%M} UTC"


def say_old_names(out: Screen, names: Iterable[OldName]) -> None:
    from instep.sync.status import old_names_data

    for one in old_names_data(names):
        out.write(f"  {old_name_line(one)}", "yellow" if one["trouble"] else "dim")
