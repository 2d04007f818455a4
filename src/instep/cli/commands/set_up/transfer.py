"""`instep export` and `instep remove`: export the objects of a server as files, and remove them from it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from instep.cli.arguments import DryRun, examples
from instep.cli.backend import open_backend
from instep.cli.context import emit, options, say


def register(app: typer.Typer) -> None:
    app.command("export", epilog=examples("instep export -o kept.yml"))(write)
    app.command(epilog=examples("instep remove source old_shop", "instep remove policy careful --dry-run"))(remove)


def remove(
    kind: Annotated[str, typer.Argument(help="source, destination, policy or channel.")],
    name: Annotated[str, typer.Argument(help="Its name.")],
    dry_run: DryRun = False,
) -> None:
    """Delete an object of the server's configuration that nothing uses.

    Connections have `instep connection delete`. Objects of instep.yml are deleted there.
    """
    from instep.operations.registry import immediate_specs

    spec = immediate_specs().get(f"delete_{kind}")
    if spec is None:
        raise typer.BadParameter(f"{kind!r} is not one of source, destination, policy, channel", param_hint="KIND")
    with open_backend() as backend:
        operations = backend.operations
        done = (operations.rehearse if dry_run else operations.perform)(spec.request(name=name))  # type: ignore[call-arg]
    word = "would be deleted" if dry_run else "deleted"
    emit({**asdict(done), "dry_run": dry_run}, lambda out: out.write(f"{word}: {kind} {name}"))


def write(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write to this file instead of standard output.")
    ] = None,
) -> None:
    """Export the server's configuration as instep.yml.

    Secrets become ${env:NAME} placeholders. Objects of the server's own instep.yml are left out.
    """
    from instep.bootstrap import open_server
    from instep.control.resources.transfer import export_text, exported

    with open_server(options.project, lazy_keys=True) as app:
        text, data = export_text(app.objects), exported(app.objects)
        if len(data) == 1:
            say(f"nothing to export: the server has no configuration beyond {app.project.file.name}")
        else:
            _ = app.store.secrets.keys  # without them nothing is written
    if out is None:
        emit(data, lambda out: _print(text))
        return
    with out.open("x", encoding="utf-8") as file:
        file.write(text)
    emit({"file": str(out)}, lambda screen: screen.write(f"wrote {out}"))


def _print(text: str) -> None:
    """Print the text as it is: it may go to a file or into another program."""
    sys.stdout.write(text)
