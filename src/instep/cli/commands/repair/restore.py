"""`instep restore`: roll a table's rows back to a snapshot."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import AllowDestructive, DryRun, OfConnection, Table, examples
from instep.cli.backend import open_backend
from instep.cli.context import confirm, console, emit
from instep.errors import Blocked
from instep.operations.repair.list_savepoints import ListSavepointsRequest
from instep.operations.repair.restore import RestoreRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.cli.screen import Screen
    from instep.destinations.base import Savepoint
    from instep.operations.spec import Preview


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "instep restore public.order --list",
            "instep restore public.order --at 2026-11-21T08:00 --dry-run",
            "instep restore public.order --snapshot 4711 --allow-destructive public.order",
        )
    )(restore)


def restore(
    table: Table,
    connection: OfConnection = None,
    snapshot: Annotated[int | None, typer.Option("--snapshot", help="The snapshot's id, from --list.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="The latest snapshot at this time (ISO 8601; UTC without a zone).")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the snapshots; restore nothing.")] = False,
    dry_run: DryRun = False,
    allow: AllowDestructive = None,
) -> None:
    """Roll a table's rows (and cursor) back to an earlier snapshot.

    The schema and the source stay as they are.
    """
    moment = _moment(at)
    if not listed and (snapshot is None) == (moment is None):
        raise typer.BadParameter("pass --snapshot ID or --at TIME; --list shows the snapshots")
    with open_backend() as backend:
        name = backend.connection(connection)
        if listed:
            points = backend.operations.run(name, ListSavepointsRequest(table=table)).savepoints
            emit(_points(table, points), lambda out: _list(out, table, points))
            return
        request = RestoreRequest(table=table, snapshot=None if snapshot is None else str(snapshot), at=moment)
        made = backend.operations.prepare(name, request)
        if dry_run:
            emit({**made.document, "run": None}, lambda out: _show(out, made))
            return
        _show(console(stderr=True), made)
        if not confirm("Restore the table?"):
            raise Blocked("nothing was restored", hint="confirm, or pass --yes")
        run, rows = backend.operations.execute(made, allow or ())["run"], made.document["rows_then"]
    emit(
        {**made.document, "run": run},
        lambda out: out.print(f"restored: {rows:,} rows; the next sync continues from there"),
    )


def _moment(text: str | None) -> datetime | None:
    from instep.control.times import utc

    if text is None:
        return None
    try:
        return utc(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time", param_hint="--at") from None


def _points(table: str, points: Sequence[Savepoint]) -> dict[str, Any]:
    return {
        "table": table,
        "snapshots": [
            {
                "id": str(p.id),
                "at": p.at,
                "run": p.run,
                "rows": p.rows,
                "current": p.current,
                "cursor": p.cursor or None,
                "why_not": p.why_not,
            }
            for p in points
        ],
    }


def _list(out: Screen, table: str, points: Sequence[Savepoint]) -> None:
    if not points:
        out.write(f"{table} has no snapshots: it was never loaded")
    for p in points:
        note = "  now" if p.current else f"  cannot be restored: {p.why_not}" if p.why_not else ""
        out.write(f"{p.id}  {p.at:%Y-%m-%d %H:%M:%S}  {p.run or '-'}  {p.rows:,} rows{note}")


def _show(out: Screen, made: Preview) -> None:
    out.write("Effect", "bold")
    for line in made.lines:
        out.write(f"  {line}")
