"""`instep repair`: corrects the rows in which a table differs from its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from instep.cli.arguments import AllowDestructive, DryRun, OfConnection, Table, examples
from instep.cli.backend import open_backend
from instep.cli.commands.everyday.sync import quarantine_text
from instep.cli.context import QUARANTINED, confirm, console, emit, fail
from instep.errors import Blocked, argument
from instep.operations.repair.repair import RepairRequest

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.operations.spec import Preview


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "instep repair public.order --dry-run", "instep repair public.order --allow-destructive public.order"
        )
    )(repair)


def repair(
    table: Table,
    connection: OfConnection = None,
    dry_run: DryRun = False,
    allow: AllowDestructive = None,
) -> None:
    """Correct only the rows of a table that differ from its source.

    The rows are those that `instep verify` finds different. The cursor and the schema stay as they are.
    """
    from instep.schema.catalog.globs import fits_glob

    with open_backend() as backend:
        made = backend.operations.prepare(backend.connection(connection), RepairRequest(table=table))
        document = made.document
        if dry_run:
            emit({**document, "examples": _examples(made), "run": None}, lambda out: _show(out, made))
            return
        if not any(document[what] for what in ("missing", "differing", "extra")):
            emit({**document, "run": None}, lambda out: _show(out, made))
            _end_as(document["verdict"])
            return
        _show(console(stderr=True), made)
        if document["extra"] and not any(fits_glob(document["table"], pattern) for pattern in allow or ()):
            what = f"{document['extra']:,} rows of {document['table']} are not in the source, and would be deleted"
            raise Blocked(what, hint=f"name it: --allow-destructive '{document['table']}'")
        if document["extra"] and not confirm("Remove these rows, and repair the others?"):
            raise Blocked("nothing was repaired", hint="answer yes, or pass --yes")
        done = backend.operations.execute(made, allow or ())
    emit({**document, **done}, lambda out: _show_result(out, done))
    _end_as(done["verdict"])


def _examples(made: Preview) -> dict[str, list[str]]:
    """Return the first keys of the rows that differ; over a server there are none, for they are in no record."""
    return {what: list(keys) for what, keys in made.prepared.examples.items()} if made.prepared else {}


def _show(out: Screen, made: Preview) -> None:
    out.write("What it does", "bold")
    for line in made.lines:
        out.write(f"  {line}")
    out.write(f"  compared by {made.document['verdict']['engine']}", "dim")
    for what, keys in _examples(made).items():
        out.write(f"  {what}: {'; '.join(f'key {key}' for key in keys)}", "dim")


def _show_result(out: Screen, done: Mapping[str, Any]) -> None:
    verdict = done["verdict"]
    counts = ", ".join(f"{done[what]:,} {what}" for what in ("inserted", "updated", "deleted"))
    if verdict["equal"]:
        out.write(f"repaired {verdict['table']}: {counts}; it equals its source now", "green")
    else:
        out.write(f"repaired {verdict['table']}: {counts}; it still differs from its source", "bold red")
    for line in verdict["differences"]:
        out.write(f"  {line}", "yellow")
    if not verdict["equal"]:
        out.write(f"  `instep backfill {argument(verdict['table'])}` reads the whole table again", "yellow")
    if verdict["held"] or verdict["held_rows"] or verdict["discarded"]:
        counts = quarantine_text(verdict["held"], verdict["held_rows"], verdict["discarded"])
        out.write(f"  {counts}: see `instep quarantine list`", "yellow")


def _end_as(verdict: Mapping[str, Any]) -> None:
    """End as `verify` does."""
    if not verdict["equal"]:
        raise fail(1)
    if verdict["held"] or verdict["held_rows"] or verdict["discarded"] or verdict["unread"]:
        raise fail(QUARANTINED)
