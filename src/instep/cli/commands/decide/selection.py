"""`instep selection show|on|off|hash|unhash`: show what is read, why and since when, and switch tables and columns."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import Connection, DryRun, ObjectMatch, Objects, OfConnection, examples
from instep.cli.backend import open_backend
from instep.cli.context import confirm, console, emit, options
from instep.operations.queries.decisions import GetSelection

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.control.immediate.decisions import SwitchedSelection
    from instep.control.selection.listing import Listed
    from instep.operations.values import Verb

selection = typer.Typer(
    help="Select the tables and columns that are replicated; hash columns.",
    epilog=examples("instep selection show", "instep selection off public.order.note"),
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    selection.command(epilog=examples("instep selection show", "instep selection show shop --all-columns"))(show)
    selection.command(epilog=examples("instep selection on public.audit", "instep selection on 'public.order.note'"))(
        on
    )
    selection.command(
        epilog=examples("instep selection off public.order.note", "instep selection off --match 'public.tmp_*'")
    )(off)
    selection.command("hash", epilog=examples("instep selection hash public.customer.email"))(hash_columns)
    selection.command(epilog=examples("instep selection unhash public.customer.email --dry-run"))(unhash)
    app.add_typer(selection, name="selection")


def show(
    connection: Connection = None,
    every: Annotated[bool, typer.Option("--all-columns", help="List every column.")] = False,
) -> None:
    """List what is selected and why.

    Lists schemas and tables, and columns that are deselected or hashed. Empty before the first detection.
    """
    with open_backend() as backend:
        name = backend.connection(connection)
        listed = backend.query(GetSelection(name, every))
    objects = [{"object": one.path, **asdict(one)} for one in listed.objects]
    document = {"connection": name, **asdict(listed), "objects": objects}
    emit(document, lambda out: _show(out, listed.objects))


def on(
    objects: Objects = None, match: ObjectMatch = None, connection: OfConnection = None, dry_run: DryRun = False
) -> None:
    """Select tables or columns, whatever the policy.

    A table gets its first load at the next sync; a column is added like a new one.
    """
    _switch("on", objects, match, connection, dry_run)


def off(
    objects: Objects = None, match: ObjectMatch = None, connection: OfConnection = None, dry_run: DryRun = False
) -> None:
    """Deselect tables or columns: they are not read, and nothing is dropped.

    Columns of the key and the cursor stay selected.
    """
    _switch("off", objects, match, connection, dry_run)


def hash_columns(
    objects: Objects = None, match: ObjectMatch = None, connection: OfConnection = None, dry_run: DryRun = False
) -> None:
    """Replicate columns only as salted SHA-256 hashes, even after a rename."""
    _switch("hash", objects, match, connection, dry_run)


def unhash(
    objects: Objects = None, match: ObjectMatch = None, connection: OfConnection = None, dry_run: DryRun = False
) -> None:
    """Replicate hashed columns in clear again."""
    _switch("unhash", objects, match, connection, dry_run)


def _switch(
    verb: Verb, objects: list[str] | None, match: list[str] | None, connection: str | None, dry_run: bool
) -> None:
    from instep.control.selection.selections import WORDS
    from instep.errors import Blocked
    from instep.operations.immediate.decisions import SwitchSelectionRequest

    with open_backend() as backend:
        name = backend.connection(connection)
        request = SwitchSelectionRequest(name, verb, tuple(objects or ()), tuple(match or ()))
        made = backend.operations.rehearse(request)
        new = [one for one in made.objects if one.changed]
        if not dry_run and new:
            talk = console(stderr=True)
            for one in new:
                talk.write(one.object, "bold")
                for line in one.lines:
                    talk.write(f"  {line}")
            if _asks() and not confirm(f"Switch {len(new)} {WORDS[verb]}?"):
                raise Blocked("the selection was not changed", hint="confirm, or pass --yes")
            backend.operations.perform_all(made.again(name))
    emit(_document(name, made, dry_run), lambda out: _show_switched(out, made, dry_run))


def _asks() -> bool:
    import sys

    return options.interactive and not options.yes and sys.stdin.isatty()


def _document(connection: str, made: SwitchedSelection, dry_run: bool) -> dict[str, Any]:
    rows = [{"object": one.object, "changed": one.changed, "lines": list(one.lines)} for one in made.objects]
    return {"connection": connection, "switched": made.verb, "dry_run": dry_run, "objects": rows}


def _show_switched(out: Screen, made: SwitchedSelection, dry_run: bool) -> None:
    from instep.control.selection.selections import WORDS

    for one in made.objects:
        state = "would be" if dry_run else "is"
        out.write(f"{one.object} {f'{state} {WORDS[made.verb]}' if one.changed else 'is already so'}")
        for line in one.lines if dry_run and one.changed else ():
            out.write(f"  {line}")


def _show(out: Screen, objects: list[Listed]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    if not objects:
        out.print("nothing has been detected yet: run `instep detect`")
        return
    grid = Grid("object", "read", "why", "since", "by", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for one in objects:
        state = ("on" if one.enabled else "off") + (", hashed" if one.hashed else "")
        since = f"{one.since:%Y-%m-%d %H:%M} UTC" if one.since else ""
        indent = "  " * (bool(one.table) + bool(one.column))
        name = one.column or one.table or one.schema
        style = "" if one.enabled else "dim"
        grid.add_row(cell(f"{indent}{name}", style), cell(state, style), cell(one.why), since, cell(one.who))
    out.print(grid)


__all__ = ["register"]
