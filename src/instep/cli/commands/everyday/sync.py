"""`instep sync` and `verify`, and what `backfill` shares with them: the commands that read rows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.arguments import Connection, Tables, examples
from instep.cli.backend import open_backend, open_remote
from instep.cli.context import QUARANTINED, emit, fail, options
from instep.cli.render.runs import end_as, show_report
from instep.cli.several import Matching, WithTag, for_each
from instep.errors import InstepError
from instep.operations.everyday.sync import SyncRequest
from instep.operations.everyday.verify import VerifyRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from instep.backends.remote import RemoteBackend
    from instep.cli.screen import Screen
    from instep.sync.operations.verify import VerifyReport, VerifyResult
    from instep.sync.progress import SyncReport


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("instep sync", "instep sync shop -t public.order", "instep sync --match '*'"))(sync)
    app.command(epilog=examples("instep verify shop --table public.order"))(verify)


def sync(
    connection: Connection = None,
    tag: WithTag = None,
    match: Matching = None,
    table: Tables = None,
    full: Annotated[
        bool, typer.Option("--full", help="Full refresh: read whole tables, whatever their cursors.")
    ] = False,
    drop_retained: Annotated[
        bool, typer.Option("--drop-retained", help="Drop retained columns where a table cannot load with them.")
    ] = False,
    drop_column: Annotated[
        list[str] | None,
        typer.Option(
            "--drop-column",
            metavar="TABLE.COLUMN",
            help="Drop this column, which the source no longer has or which is deselected.",
        ),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="With --server: return at once instead of waiting for the end.")
    ] = False,
) -> None:
    """Load new rows, and apply the schema changes that the policy accepts.

    With --server the sync runs on a worker; Ctrl-C stops waiting, not the sync.
    """
    request = SyncRequest(
        tables=tuple(table or ()), full=full, drop_retained=drop_retained, drop_columns=tuple(drop_column or ())
    )
    if no_wait:
        if not options.server:
            raise InstepError("--no-wait needs --server", hint="without --server the command runs the sync itself")
        remote = open_remote()
        for_each(remote, connection, tag, match, lambda name: _begin(remote, name, request))
        return
    with open_backend() as backend:
        for_each(backend, connection, tag, match, lambda name: finish(backend.operations.run(name, request)))


def _begin(backend: RemoteBackend, connection: str, request: SyncRequest) -> None:
    job = backend.operations.begin(connection, request)
    emit({"job": job}, lambda out: out.write(f"job {job['id']} {job['status']}: `instep queue show {job['id']}`"))


def verify(connection: Connection = None, tag: WithTag = None, match: Matching = None, table: Tables = None) -> None:
    """Compare source and destination: row counts, checksums and keys.

    Compares checksums of the rows and lists the keys that differ; with --server only their number.
    """
    request = VerifyRequest(tables=tuple(table or ()))
    with open_backend() as backend:
        for_each(backend, connection, tag, match, lambda name: _end_verify(backend.operations.run(name, request)))


def _end_verify(report: VerifyReport) -> None:
    verdicts = report.tables
    emit({"tables": [asdict(v) for v in verdicts]}, lambda out: _show_verdicts(out, verdicts))
    if not all(v.equal or v.waits for v in verdicts):
        raise fail(1)
    if any(v.waits for v in verdicts):
        raise fail(QUARANTINED)


def finish(report: SyncReport) -> None:
    emit(asdict(report), lambda out: show_report(out, report))
    end_as(report)


def _show_verdicts(out: Screen, verdicts: Sequence[VerifyResult]) -> None:
    from instep.cli.screen import cell

    if not verdicts:
        out.print("nothing to compare: no table has been synced yet; run `instep sync`")
    for v in verdicts:
        counts = f"{v.source_rows:,} rows in the source, {v.destination_rows:,} in the destination"
        text = f" {v.table}: {v.skipped or (counts if v.compared else 'could not be compared')}"
        out.print(_mark(v), cell(text), sep="")
        if v.stale:
            out.write(f"         {v.stale:,} quarantined that the source no longer has")
        if v.unread:
            out.write(f"         {v.unread}", "yellow")
        if v.retained:
            out.write(f"         {v.retained:,} of them only in the destination: retained by `deletes: ignore`")
        for line in (part for difference in v.differences for part in difference.splitlines()):
            out.write(f"         {line}", "yellow")
    if engine := next((v.engine for v in verdicts if v.engine), ""):
        out.write(f"compared by {engine}", "dim")


def _mark(result: VerifyResult) -> Text:
    from instep.cli.screen import cell

    if result.skipped:
        return cell("skipped", "yellow")
    if not result.equal:
        return cell("DIFFERS", "bold red")
    if not result.waits:
        return cell("equal  ", "green")
    counts = quarantine_text(result.held, result.held_rows, result.discarded) or "not all was read"
    return cell(f"equal, {counts} ", "yellow")


def quarantine_text(values: int, rows: int, discarded: int) -> str:
    """Return the counts of what a comparison left out: quarantined values and rows, and entries that were discarded."""
    parts = [(values, "value", "quarantined"), (rows, "row", "quarantined"), (discarded, "entry", "discarded")]
    return ", ".join(f"{n:,} {_plural(what, n)} {how}" for n, what, how in parts if n)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else "entries" if word == "entry" else f"{word}s"
