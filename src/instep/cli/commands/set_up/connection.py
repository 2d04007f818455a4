"""`instep connection delete`: delete a connection with its slot and, on request, its tables."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.arguments import examples
from instep.cli.context import PARTIAL, emit, fail, open_app, options, say

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.cli.screen import Screen
    from instep.sync.operations.delete import DeletedConnection, OwnedObjects


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Delete a connection.",
        epilog=examples("instep connection delete shop --confirm shop"),
        no_args_is_help=True,
    )
    group.callback()(_group)
    group.command(epilog=examples("instep connection delete shop --drop-tables --confirm shop"))(delete)
    app.add_typer(group, name="connection")


def _group() -> None:
    """Keep the group a group while it has one command."""


def delete(
    name: Annotated[str, typer.Argument(help="The connection.")],
    drop_tables: Annotated[
        bool, typer.Option("--drop-tables", help="Also drop its tables at the destination.")
    ] = False,
    confirm: Annotated[
        str, typer.Option("--confirm", help="The connection's name again, instead of the question.")
    ] = "",
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Leave behind what is at a source or destination that cannot be reached.")
    ] = False,
) -> None:
    """Delete a connection with its records and its slot at the source.

    Its tables stay unless --drop-tables is given. Asks for the connection's name; --yes does not answer.
    """
    from instep.control.connectors import forget_operations
    from instep.crash import crashpoint
    from instep.project.load import load_beside
    from instep.sync.operations.delete import leave, owned_objects

    with _app(name) as app:
        context = app.sync_context(name)
        given = confirm or _typed_name(owned_objects(context), drop_tables)
        left = leave(context, "drop" if drop_tables else "keep", named=given, abandon=abandon)
        forget_operations(app.project, app.store, name)
        crashpoint("leave.object.before")
        if name not in set(load_beside(app.project.root).model.connections):
            app.objects.delete("connection", name)
        else:
            say(f"next: remove it from {app.project.file.name}, or its next sync starts over")
    emit(asdict(left), lambda out: _show(out, left))
    if left.behind:
        raise fail(PARTIAL)


def _app(name: str) -> App:
    """Open the project of the file if it has the connection, which needs no master keys; else the server's."""
    from instep.bootstrap import open_server
    from instep.project.load import load_beside

    return open_app() if name in load_beside(options.project).model.connections else open_server(options.project)


def _typed_name(owned_objects: OwnedObjects, drop: bool) -> str:
    if not (options.interactive and sys.stdin.isatty()):
        return ""
    say(f"slot at the source: {owned_objects.log or 'none'}")
    say(f"tables at the destination, which will be {'DROPPED' if drop else 'kept'}: {len(owned_objects.tables)}")
    say(f"copies beside them: {len(owned_objects.copies)}")
    return str(typer.prompt(f"Type {owned_objects.connection} to delete it", default="", show_default=False, err=True))


def _show(out: Screen, left: DeletedConnection) -> None:
    out.write(f"deleted connection {left.connection}: {sum(left.records.values())} records")
    if left.log:
        out.write(f"dropped slot {left.log}")
    for word, refs in (("dropped", left.dropped), ("kept", left.kept)):
        for ref in refs:
            out.write(f"{word} {'.'.join(ref)}")
    for line in left.behind:
        out.write(f"left behind: {line}", "yellow")
