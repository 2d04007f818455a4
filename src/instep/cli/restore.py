"""`instep restore`: puts a table's rows back to a snapshot."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.context import confirm, console, emit, one_connection, open_app
from instep.errors import Blocked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.cli.screen import Screen
    from instep.destinations.savepoints import Savepoint
    from instep.schema.table import Table
    from instep.sync.changes.restore import Restoring


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Examples: instep restore public.order --list · instep restore public.order --at 2026-11-21T08:00 "
        "--dry-run · instep restore public.order --snapshot 4711 --allow-destructive public.order"
    )(restore)


def restore(
    table: Annotated[str, typer.Argument(help="schema.table")],
    connection: Annotated[str | None, typer.Option("--connection", "-c", help="Its connection.")] = None,
    snapshot: Annotated[int | None, typer.Option("--snapshot", help="The snapshot, as --list shows it.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="As it was at this time (ISO 8601; UTC without a zone).")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Only list the snapshots.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")] = False,
    allow: Annotated[
        list[str] | None, typer.Option("--allow-destructive", help="Tables that may be put back; a pattern.")
    ] = None,
) -> None:
    """Put a table's rows back to a snapshot, cursor included. The schema and the source stay as they are."""
    moment = _moment(at)
    if not listed and (snapshot is None) == (moment is None):
        raise typer.BadParameter("name one: --snapshot ID or --at TIME; --list shows what there is")
    from instep.sync.changes.restore import prepare, savepoints
    from instep.sync.changes.restore import restore as put_back

    with open_app() as app:
        pipe = app.pipe(one_connection(app, connection))
        if listed:
            found, points = savepoints(pipe, table)
            emit(_points(found, points), lambda out: _list(out, found, points))
            return
        made = prepare(pipe, table, snapshot, moment)
        if dry_run:
            emit(_data(made, None), lambda out: _show(out, made))
            return
        _show(console(stderr=True), made)
        if not confirm("Put the table back?"):
            raise Blocked("nothing was restored", hint="answer yes, or pass --yes")
        run = put_back(pipe, made, tuple(allow or ()))
    emit(_data(made, run.id), lambda out: out.print(f"restored: {made.rows:,} rows; sync to read on from there"))


def _moment(text: str | None) -> datetime | None:
    from instep.control.times import utc

    if text is None:
        return None
    try:
        return utc(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time", param_hint="--at") from None


def _points(table: Table, points: Sequence[Savepoint]) -> dict[str, Any]:
    return {
        "table": table.path,
        "snapshots": [
            {
                "id": str(p.id), "at": p.at, "run": p.run, "rows": p.rows, "current": p.current,
                "cursor": p.cursor or None, "why_not": p.why_not,
            }
            for p in points
        ],
    }  # fmt: skip


def _list(out: Screen, table: Table, points: Sequence[Savepoint]) -> None:
    if not points:
        out.write(f"{table.path} was never loaded: it has no snapshots")
    for p in points:
        note = "  now" if p.current else f"  cannot be restored: {p.why_not}" if p.why_not else ""
        out.write(f"{p.id}  {p.at:%Y-%m-%d %H:%M:%S}  {p.run or '-'}  {p.rows:,} rows{note}")


def _data(made: Restoring, run: str | None) -> dict[str, Any]:
    return {
        "table": made.table.path,
        "snapshot": str(made.point.id),
        "at": made.point.at,
        "rows_now": made.now.rows,
        "rows_then": made.rows,
        "commits_since": made.since,
        "filled_again": list(made.again),
        "read_again": made.whole,
        "lost": list(made.lost),
        "does": list(made.lines),
        "run": run,
    }


def _show(out: Screen, made: Restoring) -> None:
    out.write("What it does", "bold")
    for line in made.lines:
        out.write(f"  {line}")
