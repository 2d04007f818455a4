"""`instep backfill`: a table again, or only the values of some of its columns, with an estimate first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.context import confirm, emit, one_connection, open_app
from instep.cli.move import run_and_report
from instep.errors import Blocked

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.sync.changes.fill_plan import Estimate
    from instep.sync.pipe import Pipe


def register(app: typer.Typer) -> None:
    app.command(epilog="Examples: instep backfill public.order · instep backfill public.order --column note --dry-run")(
        backfill
    )


def backfill(
    table: Annotated[str, typer.Argument(help="schema.table")],
    column: Annotated[
        list[str] | None, typer.Option("--column", help="Fill only this column, where rows have NULL; repeatable.")
    ] = None,
    connection: Annotated[str | None, typer.Option("--connection", "-c", help="Its connection.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it takes.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Whatever the window and the budget say.")] = False,
) -> None:
    """Bring values into rows that were loaded before: the whole table read again and swapped in at once, or, with
    --column, just that column read and joined into the rows that have NULL in it."""
    path, columns = frozenset((table,)), tuple(column or ())
    if not (dry_run or columns):
        run_and_report(connection, tables=path, full=True, kind="backfill")
        return
    with open_app() as app:
        name = one_connection(app, connection)
        pipe = app.pipe(name)
        found = _estimate(pipe, table, columns)
        if dry_run:
            data = {"connection": name, "estimate": asdict(found), "waits": _waits(pipe, found)}
            emit(data, lambda out: _show(out, found, _waits(pipe, found)))
            return
        if not now and (why := _waits(pipe, found)) and not confirm(f"{table}: {why}. Fill it now?"):
            raise Blocked(f"table {table} was not filled: {why}", hint="pass --now, or leave it to the syncs")
        ref = _ref(pipe, table)
        for one in found.columns:
            pipe.store.backfills.want(name, ref, column=one, why=f"asked for by {pipe.who}")
    run_and_report(name, tables=path, columns=found.columns, kind="backfill")


def _ref(pipe: Pipe, path: str) -> tuple[str, str]:
    return next(t.ref for t in pipe.store.accepted.catalog(pipe.name).tables if t.path == path)


def _estimate(pipe: Pipe, path: str, columns: Sequence[str]) -> Estimate:
    """From the last detection and the destination's metadata: neither the source nor a file is opened."""
    from instep.sync.changes.fill_plan import check_columns, estimate, estimate_whole

    table, names = check_columns(pipe, path, columns)
    known = pipe.store.discoveries.get(pipe.name)
    rows, size = known.stats.get(table.ref, (0, 0)) if known else (0, 0)
    if not names:
        return estimate_whole(pipe, table, rows, size)
    numbers = {b.column: b.number for b in pipe.store.backfills.waiting(pipe.name) if b.table == table.ref}
    return estimate(pipe, table, {n: numbers.get(n, 0) for n in names}, rows, size)


def _waits(pipe: Pipe, found: Estimate) -> str:
    from instep.schema.limits import waits

    return waits(pipe.backfill_limits, datetime.now(UTC), found.rewritten) if found.columns else ""


def _show(out: Screen, found: Estimate, waits: str) -> None:
    what = f"{found.table}: {', '.join(found.columns) or 'the whole table'}"
    out.write(what, "bold")
    from instep.schema.explain import size

    about = "" if found.sure else " (the source has no statistics: sync or analyze it for a better guess)"
    out.write(f"  reads about {found.rows:,} rows, {size(found.read)} from the source{about}")
    out.write(f"  writes {found.files:,} of {found.of:,} files again, {size(found.rewritten)} (from metadata, exact)")
    if found.why_not:
        out.write(f"  cannot be done: {found.why_not}", "yellow")
    if waits:
        out.write(f"  by itself: {waits}", "yellow")
