"""`instep undo`: undo an applied change, or all changes of a run or a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import AllowDestructive, DryRun, OfConnection, examples
from instep.cli.backend import open_backend
from instep.cli.context import confirm, console, emit
from instep.errors import Blocked
from instep.operations.repair.undo import UndoRequest

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.operations.spec import Preview


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples("instep undo c-7f3a2b --dry-run", "instep undo c-7f3a2b", "instep undo r-20261121-101500")
    )(undo)


def undo(
    what: Annotated[
        str, typer.Argument(help="A change (c-...), a run (r-...) or a plan (p-...).", metavar="CHANGE|RUN|PLAN")
    ],
    connection: OfConnection = None,
    dry_run: DryRun = False,
    allow: AllowDestructive = None,
) -> None:
    """Undo applied changes: renames, drops, additions, wider types, comments.

    Only the destination changes; the source is not touched.
    """
    from instep.backends.calls import find_owner

    with open_backend() as backend:
        whole, owner = find_owner(backend, what, connection)
        made = backend.operations.prepare(owner, UndoRequest(what=whole))
        if dry_run:
            emit(_data(made, None), lambda out: _show(out, made.document))
            return
        _show(console(stderr=True), made.document)
        if not confirm("Undo these changes?"):
            raise Blocked("nothing was undone", hint="confirm, or pass --yes")
        version = backend.operations.execute(made, allow or ())["version"]
    emit(_data(made, version), lambda out: out.print(f"undone: schema version {version}"))


def _data(made: Preview, version: int | None) -> dict[str, Any]:
    undone = made.document
    document = {name: undone[name] for name in ("changes", "does", "drops", "limits")}
    left = [{"change": id, "why": why} for id, why in sorted(undone["left"].items())]
    return {"connection": made.connection, **document, "left": left, "version": version}


def _show(out: Screen, document: Mapping[str, Any]) -> None:
    out.write("This undoes", "bold")
    for id, summary in zip(document["changes"], document["summaries"], strict=True):
        out.write(f"  {id}  {summary}")
    out.write("Effect", "bold")
    for line in document["does"]:
        out.write(f"  {line}")
    for drop in document["drops"]:
        out.write(f"  drops {drop}: name it with --allow-destructive", "red")
    if document["limits"] or document["left"]:
        out.write("Cannot be restored", "bold")
    for line in (*document["limits"], *document["left"].values()):
        out.write(f"  {line}", "yellow")
