"""`instep contract ...`: the accepted schema as a data contract; a source compared with one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import Connection, OfConnection, TablePattern, examples
from instep.cli.context import CHANGES, emit, fail, one_connection, open_app, say
from instep.cli.render.live import waiting

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.cli.screen import Screen
    from instep.schema.catalog.catalog import Catalog
    from instep.schema.contracts.compliance import ContractDifference

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A data contract: Open Data Contract Standard (ODCS), version 3.")
]
contract = typer.Typer(
    help="Export, check and import data contracts (ODCS).",
    epilog=examples("instep contract export shop -o contracts/shop.odcs.yaml"),
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(contract, name="contract")


@contract.command(epilog=examples("instep contract export", "instep contract export shop -o contracts/shop.odcs.yaml"))
def export(
    connection: Connection = None,
    table: TablePattern = "",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file, replacing it.")] = None,
) -> None:
    """Export the accepted schema as an ODCS 3.1 data contract.

    The file has no timestamps: commit it, and its diff is the diff of the schema.
    """
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


@contract.command(epilog=examples("instep contract check shop.odcs.yaml", "instep contract check shop.yaml --recorded"))
def check(
    file: File,
    connection: OfConnection = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Check the accepted schema instead of reading the source.")
    ] = False,
) -> None:
    """Check that the source still satisfies a data contract.

    Exits with 2 if it does not. Columns that the contract does not name are noted. Narrower types of the same kind
    satisfy it.
    """
    from instep.control.contracts import checked

    with open_app() as app, waiting():
        name = one_connection(app, connection)
        differences = checked(file, _catalog(app, name, recorded=recorded))
    breaches = [f for f in differences if f.breach]
    data = {
        "connection": name,
        "file": str(file),
        "compared": "accepted" if recorded else "source",
        "within": not breaches,
        "breaches": [*map(asdict, breaches)],
        "notes": [asdict(f) for f in differences if not f.breach],
    }
    emit(data, lambda out: _show(out, file, differences))
    if breaches:
        raise fail(CHANGES)


def _catalog(app: App, connection: str, *, recorded: bool) -> Catalog:
    if recorded:
        from instep.control.contracts import recorded as accepted

        return accepted(app.store, connection)
    return app.source(app.project.source_of(connection)).discover().catalog


def _show(out: Screen, file: Path, differences: tuple[ContractDifference, ...]) -> None:
    for one in differences:
        prefix = "" if one.breach else "note: "
        out.write(f"{file.name}:{one.line}: {prefix}{one.text}", "red" if one.breach else "dim")
    breaches = sum(one.breach for one in differences)
    out.write(f"{breaches} violation{'s' * (breaches != 1)}" if breaches else "the contract is satisfied")


@contract.command("import", epilog=examples("instep contract import shop.odcs.yaml --action pause_table"))
def take_over(
    file: File,
    connection: OfConnection = None,
    action: Annotated[
        str,
        typer.Option(
            "--action", help="The action for changes that break the contract: review, pause_table or pause_connection."
        ),
    ] = "review",
) -> None:
    """Print the instep.yml keys that hold a connection to a data contract.

    They select the contract's tables and add policy rules for changes that break it. instep.yml is not changed; parts
    of the contract that no key expresses are noted.
    """
    from typing import cast, get_args

    from instep.control.contracts import Hold, contract_keys

    if action not in get_args(Hold):
        raise typer.BadParameter(f"{action!r} is not one of {', '.join(get_args(Hold))}", param_hint="--action")
    with open_app() as app:
        name = one_connection(app, connection)
        keys = contract_keys(app.project, app.store, name, file, cast("Hold", action))
    for note in keys.notes:
        say(f"note: {note}")
    data: dict[str, Any] = {"connection": name, "keys": keys.keys, "notes": keys.notes}
    emit(data, lambda _: typer.echo(keys.text, nl=False))
