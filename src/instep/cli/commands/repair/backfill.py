"""`instep backfill`: reload a table, or fill single columns in existing rows, with an estimate first."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import DryRun, OfConnection, Table, examples
from instep.cli.backend import open_backend, table_ref
from instep.cli.commands.everyday.sync import finish
from instep.cli.context import confirm, emit
from instep.errors import Blocked, argument
from instep.operations.everyday.backfill import BackfillRequest
from instep.operations.immediate.work import CancelBackfillRequest
from instep.operations.queries.work import EstimateBackfill, EstimatedBackfill

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.control.backfills import Cancelled
    from instep.store.catalogs.backfills import Backfill


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "instep backfill public.order",
            "instep backfill public.order --column note --dry-run",
            "instep backfill public.order --cancel",
        )
    )(backfill)


def backfill(
    table: Table,
    column: Annotated[
        list[str] | None, typer.Option("--column", help="Fill only this column where rows have NULL; repeatable.")
    ] = None,
    connection: OfConnection = None,
    dry_run: DryRun = False,
    now: Annotated[bool, typer.Option("--now", help="Ignore the backfill window and budget.")] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel the table's pending or running backfill; filled rows stay.")
    ] = False,
) -> None:
    """Reload a table, or backfill single columns (--column).

    With --column only that column is read and filled in where existing rows have NULL. Without it the whole table is
    read again and swapped in at once.
    """
    columns = tuple(column or ())
    with open_backend() as backend:
        name = backend.connection(connection)
        if cancel:
            table_ref(backend, name, table)
            request = CancelBackfillRequest(connection=name, table=table, columns=columns)
            _cancel(backend.operations.perform(request), name, table)
            return
        if dry_run or columns:
            estimate: EstimatedBackfill = backend.query(EstimateBackfill(name, table, columns))
            waits = estimate.waits
            if dry_run:
                emit(_document(name, estimate), lambda out: _show(out, estimate))
                return
            if not now and waits and not confirm(f"{table}: {waits}. Backfill it now?"):
                raise Blocked(
                    f"table {table} was not backfilled: {waits}", hint="pass --now, or let the syncs backfill it"
                )
            columns = tuple(dict.fromkeys(columns))
        report = backend.operations.run(name, BackfillRequest(table=table, columns=columns))
    finish(report)


def _cancel(gone: Cancelled, connection: str, table: str) -> None:
    columns = [b.column or "the whole table" for b in gone.backfills]
    data = {"connection": connection, "table": table, "cancelled": [asdict(b) for b in gone.backfills]}
    data |= {"jobs": list(gone.jobs), "required": [asdict(b) for b in gone.required]}
    lines = [f"cancelled: {', '.join([*columns, *gone.jobs])}"] if gone else []
    lines += [_required(b, table) for b in gone.required]
    lines = lines or ["no backfill waits or runs"]

    def show(out: Screen) -> None:
        for line in lines:
            out.write(f"{table}: {line}")

    emit(data, show)


def _required(backfill: Backfill, table: str) -> str:
    what = "the whole table is still read by a sync"
    if backfill.column:
        what = f"values of {backfill.column} are still taken out of the kept JSON by a sync"
    return f"{what}: {backfill.why} (`instep pause {argument(table)}` has it wait)"


def _document(connection: str, estimated: EstimatedBackfill) -> dict[str, Any]:
    estimate = asdict(estimated)
    waits = estimate.pop("waits")
    return {"connection": connection, "estimate": estimate, "waits": waits}


def _show(out: Screen, estimate: EstimatedBackfill) -> None:
    what = f"{estimate.table}: {', '.join(estimate.columns) or 'the whole table'}"
    out.write(what, "bold")
    if estimate.whole:
        out.write(f"  {estimate.whole}: single columns cannot be backfilled", "yellow")
    from instep.schema.planning.explain import size

    about = "" if estimate.sure else " (the source has no statistics: sync or analyze it for a better guess)"
    out.write(f"  reads about {estimate.rows:,} rows, {size(estimate.read)} from the source{about}")
    out.write(
        f"  rewrites {estimate.files:,} of {estimate.of:,} files, {size(estimate.rewritten)} (from metadata, exact)"
    )
    if estimate.why_not:
        out.write(f"  not possible: {estimate.why_not}", "yellow")
    if estimate.waits:
        out.write(f"  by itself: {estimate.waits}", "yellow")
