"""`instep source ...` and `instep destination ...`: test sources and destinations, and list their tables."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.arguments import DryRun, OfConnection, examples
from instep.cli.backend import open_backend
from instep.cli.commands.set_up.log import log, log_checks
from instep.cli.context import confirm_change, emit, fail, open_app
from instep.cli.render.live import waiting
from instep.errors import ProjectError
from instep.operations.queries.work import ListConnections
from instep.operations.set_up.upgrade_source import UpgradeSourceRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.backends.protocol import Backend
    from instep.cli.screen import Screen
    from instep.model import Check
    from instep.sources.base import Discovery

source = typer.Typer(
    help="Test a source, list its tables, inspect its log.",
    epilog=examples("instep source test shop_pg", "instep source discover shop_pg"),
    no_args_is_help=True,
)
destination = typer.Typer(
    help="Test a destination.", epilog=examples("instep destination test lake"), no_args_is_help=True
)
Source = Annotated[str | None, typer.Argument(metavar="SOURCE", help="The source; optional if there is only one.")]
Destination = Annotated[
    str | None, typer.Argument(metavar="DESTINATION", help="The destination; optional if there is only one.")
]


def register(app: typer.Typer) -> None:
    source.add_typer(log, name="log")
    app.add_typer(source, name="source")
    app.add_typer(destination, name="destination")


@source.command("test", epilog=examples("instep source test shop_pg"))
def source_test(name: Source = None) -> None:
    """Log in to a source and check what a sync needs.

    Prints the statements (GRANT, ALTER) that grant what is missing, and changes nothing. A `note` is no failure; exits
    with 4 if a sync would fail.
    """
    with open_app() as app:
        with waiting():
            checks = [*app.source(name).test(), *log_checks(app, name)]
        _show_checks(checks)


@destination.command("test", epilog=examples("instep destination test lake"))
def destination_test(name: Destination = None) -> None:
    """Create, write, alter and drop a scratch table."""
    with open_app() as app:
        with waiting():
            checks = app.destination(name).lifecycle.test()
        _show_checks(checks)


@source.command(epilog=examples("instep source discover shop_pg --columns --output json"))
def discover(
    name: Source = None,
    columns: Annotated[bool, typer.Option("--columns", help="Also list the columns.")] = False,
    match: Annotated[
        list[str] | None, typer.Option("--match", help="Only tables that match a glob or re:REGEX; repeatable.")
    ] = None,
) -> None:
    """List a source's schemas, tables and, with --columns, column types."""
    from dataclasses import replace

    from instep.schema.catalog.catalog import Catalog, catalog_to_dict
    from instep.schema.selection.selection import patterns

    matching = patterns(match or ())
    with open_app() as app, waiting():
        discovery = app.source(name).discover()
    if matching:
        fitting = [table for table in discovery.catalog.tables if any(p.matches(table.path) for p in matching)]
        discovery = replace(discovery, catalog=Catalog.of(fitting))
    emit(catalog_to_dict(discovery.catalog), lambda out: _show_catalog(out, discovery, columns=columns))


@source.command(
    epilog=examples(
        "instep source upgrade shop_crm --dry-run",
        "instep source upgrade shop_crm --to 2.0.0 --metadata metadata.yaml",
        "instep source upgrade shop_crm --rollback",
    )
)
def upgrade(
    name: Source = None,
    connection: OfConnection = None,
    to: Annotated[str, typer.Option("--to", metavar="VERSION", help="The version; the default is the newest.")] = "",
    metadata: Annotated[
        Path | None, typer.Option("--metadata", metavar="FILE", help="A metadata.yaml with `breakingChanges`.")
    ] = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Go back to the previous version and the states of that time.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Upgrade the connector of a source, or go back.

    Compares both versions first: configuration, types, removed streams and columns, how rows are written, states. Then
    shows what that changes in each connection and its models. Writes the version into instep.yml; the states stay.
    """
    from instep.project.load import text_of

    text = text_of(metadata, "name a file that is there") if metadata else ""
    with open_backend() as backend:
        request = UpgradeSourceRequest(to=to, rollback=rollback, metadata=text)
        made = backend.operations.prepare(connection or _reader(backend, name), request)
        data = {**made.document, "applied": False}
        if dry_run:
            emit(data, lambda out: out.print("\n".join(made.lines), markup=False))
            return
        confirm_change(made.lines, f"Use {made.document['after']}?")
        data |= backend.operations.execute(made)
    text = f"{data['source']} uses {data['after']} from now on" + "".join(f"; {c} is resumed" for c in data["resumed"])
    emit(data, lambda out: out.write(text))


def _reader(backend: Backend, name: str | None) -> str:
    """Return a connection that reads the named source, or the only one."""
    from instep.suggest import first_of

    found: dict[str, str] = {one.source: one.name for one in reversed(backend.items(ListConnections()))}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name in found:
        return found[name]
    if name is None:
        raise ProjectError(f"{len(found)} sources are read: choose one", hint=f"name it: {first_of(sorted(found))}")
    raise ProjectError(
        f"no connection reads source {name}", hint="correct the name, or edit its `package` in instep.yml"
    )


def _show_checks(checks: Sequence[Check]) -> None:
    def render(out: Screen) -> None:
        for check in checks:
            mark, style = _mark(check)
            out.print(mark, style=style, end=" ")
            detail, *more = check.detail.splitlines() or [""]
            out.write(f"{check.name}{': ' + detail if detail else ''}")
            for line in (*more, *check.hint.splitlines()):
                out.write(f"     {line}", "dim")

    emit({"checks": [asdict(c) for c in checks]}, render)
    if not all(c.ok or not c.needed for c in checks):
        raise fail(4)


def _mark(check: Check) -> tuple[str, str]:
    if check.ok:
        return "ok  ", "green"
    return ("FAIL", "bold red") if check.needed else ("note", "yellow")


def _show_catalog(out: Screen, discovery: Discovery, *, columns: bool) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell
    from instep.schema.policy.safeguards import text_sentences

    grid = Grid("table", "kind", "rows (estimate)", "key", "columns", box=None, header_style="bold")
    for table in discovery.catalog.tables:
        stats = discovery.stats.get(table.ref)
        rows = f"{stats.rows:,}" if stats else "?"
        key = ", ".join(table.key) or "none"
        grid.add_row(cell(table.path), table.kind, rows, cell(key), str(len(table.columns)))
        if columns:
            for c in table.columns:
                note = f" ({c.note})" if c.note else ""
                kind = f"{c.type}{'' if c.nullable else ' not null'}{note}"
                grid.add_row(cell(f"  {c.name}"), cell(kind), "", "", cell(c.native))
    out.print(grid)
    for sentence in text_sentences((t.path, c) for t in discovery.catalog.tables for c in t.columns):
        out.write(sentence)
    for path, why in sorted(discovery.denied.items()):
        out.write(f"not readable: {'.'.join(path)}: {why}", "yellow")
    for ref, why in sorted(discovery.unread.items()):
        out.write(f"{'.'.join(filter(None, ref))}: {why}", "yellow")
