"""`instep contract ...`: the accepted schema as a data contract; a source compared with one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.context import CHANGES, emit, fail, one_connection, open_app, say

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.cli.screen import Screen
    from instep.schema.catalog.catalog import Catalog
    from instep.schema.contracts.compliance import ContractDifference

Of = Annotated[str | None, typer.Option("--connection", "-c", help="Not needed when there is only one.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A contract of the Open Data Contract Standard, version 3.")]
contract = typer.Typer(help="Data contracts (ODCS): export, check, import.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(contract, name="contract")


@contract.command(epilog="Examples: instep contract export · instep contract export shop -o contracts/shop.odcs.yaml")
def export(
    connection: Annotated[str | None, typer.Argument(help="Its name; not needed when there is only one.")] = None,
    table: Annotated[str, typer.Option("--table", "-t", metavar="PATTERN", help="Only these (schema.table).")] = "",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write this file, replacing it.")] = None,
) -> None:
    """The accepted schema as a contract of the Open Data Contract Standard 3.1. It holds no times: commit it, and its
    diff is the schema's."""
    from instep.control.contracts import exported
    from instep.project.files.contract import contract_text

    with open_app() as app:
        name = one_connection(app, connection)
        document = exported(app.project, app.store, name, table)
    text = contract_text(document)
    if out is not None:
        out.write_text(text, encoding="utf-8")
        say(f"wrote {out}")
    data = {"connection": name, "contract": document, "file": str(out) if out else None}
    emit(data, lambda _: None if out else typer.echo(text, nl=False))


@contract.command(epilog="Examples: instep contract check shop.odcs.yaml · instep contract check shop.yaml --recorded")
def check(
    file: File,
    connection: Of = None,
    recorded: Annotated[bool, typer.Option("--recorded", help="What is accepted, without reading the source.")] = False,
) -> None:
    """Whether what the source has now is within a contract; exit with 2 if it is not. Columns that the contract does
    not name are noted. Narrower types of the same kind are within it."""
    from instep.control.contracts import checked

    with open_app() as app:
        name = one_connection(app, connection)
        found = checked(file, _catalog(app, name, recorded=recorded))
    breaches = [f for f in found if f.breach]
    data = {
        "connection": name, "file": str(file), "compared": "accepted" if recorded else "source",
        "within": not breaches, "breaches": [*map(asdict, breaches)],
        "notes": [asdict(f) for f in found if not f.breach],
    }  # fmt: skip
    emit(data, lambda out: _show(out, file, found))
    if breaches:
        raise fail(CHANGES)


def _catalog(app: App, connection: str, *, recorded: bool) -> Catalog:
    if recorded:
        from instep.control.contracts import recorded as accepted

        return accepted(app.store, connection)
    return app.source(app.project.source_of(connection)).discover().catalog


def _show(out: Screen, file: Path, found: tuple[ContractDifference, ...]) -> None:
    for one in found:
        said = "" if one.breach else "note: "
        out.write(f"{file.name}:{one.line}: {said}{one.text}", "red" if one.breach else "dim")
    breaches = sum(one.breach for one in found)
    out.write(f"{breaches} breach{'es' * (breaches != 1)}" if breaches else "within the contract")


@contract.command("import", epilog="Example: instep contract import shop.odcs.yaml --hold pause_table")
def take_over(
    file: File,
    connection: Of = None,
    hold: Annotated[str, typer.Option("--hold", help="review, pause_table or pause_connection.")] = "review",
) -> None:
    """The keys of instep.yml that hold a connection to a contract: its tables, and rules that hold what breaks it.
    instep.yml is not touched; what the keys cannot say is noted."""
    from typing import cast, get_args

    from instep.control.contracts import Hold, held_to

    if hold not in get_args(Hold):
        raise typer.BadParameter(f"{hold!r} is none of {', '.join(get_args(Hold))}", param_hint="--hold")
    with open_app() as app:
        name = one_connection(app, connection)
        found = held_to(app.project, app.store, name, file, cast("Hold", hold))
    for note in found.notes:
        say(f"note: {note}")
    data: dict[str, Any] = {"connection": name, "keys": found.keys, "notes": found.notes}
    emit(data, lambda _: typer.echo(found.text, nl=False))
