"""`instep undo`: takes an applied change, or all of a run's or a plan's, back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.context import confirm, console, emit, one_connection, open_app
from instep.errors import Blocked

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.cli.screen import Screen
    from instep.sync.changes.undo import Takeback


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Examples: instep undo c-7f3a2b --dry-run · instep undo c-7f3a2b · instep undo r-20261121-101500"
    )(undo)


def undo(
    what: Annotated[
        str, typer.Argument(help="A change (c-...), a run (r-...) or a plan (p-...).", metavar="CHANGE|PLAN")
    ],
    connection: Annotated[str | None, typer.Option("--connection", "-c", help="Its connection, for a plan.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")] = False,
    allow: Annotated[
        list[str] | None, typer.Option("--allow-destructive", help="Objects that may be dropped; a pattern.")
    ] = None,
) -> None:
    """Take back what was applied: renames, drops, additions, widenings, comments. The source is not touched."""
    from instep.sync.changes.undo import find, prepare, takeback

    with open_app() as app:
        pipe = app.pipe(_connection(app, what, connection))
        made = prepare(pipe, find(pipe, what))
        if dry_run:
            emit(_data(pipe.name, made, None), lambda out: _show(out, made))
            return
        _show(console(stderr=True), made)
        if not confirm("Take this back?"):
            raise Blocked("nothing was undone", hint="answer yes, or pass --yes")
        version = takeback(pipe, made, tuple(allow or ()))
    emit(_data(pipe.name, made, version), lambda out: out.print(f"undone: schema version {version}"))


def _connection(app: App, what: str, name: str | None) -> str:
    """A change and a run know theirs."""
    if name is None and what.startswith("r-"):
        return app.store.runs.get(what).connection
    if name is None and what.startswith("p-"):
        return app.store.plans.get(what).connection
    return one_connection(app, name) if name else app.store.reviews.get(what).connection


def _data(connection: str, made: Takeback, version: int | None) -> dict[str, Any]:
    return {
        "connection": connection,
        "changes": [r.id for r in made.reviews],
        "does": list(made.does),
        "drops": [s.object for s in made.drops],
        "limits": list(made.limits),
        "left": [{"change": id, "why": why} for id, why in sorted(made.left.items())],
        "version": version,
    }


def _show(out: Screen, made: Takeback) -> None:
    out.write("This takes back", "bold")
    for review in made.reviews:
        out.write(f"  {review.id}  {review.summary}")
    out.write("What it does", "bold")
    for line in made.does:
        out.write(f"  {line}")
    for drop in made.drops:
        out.write(f"  drops {drop.object}: name it with --allow-destructive", "red")
    if made.limits or made.left:
        out.write("What it cannot restore", "bold")
    for line in (*made.limits, *made.left.values()):
        out.write(f"  {line}", "yellow")
