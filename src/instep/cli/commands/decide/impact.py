"""`instep impact`: which downstream models the open and planned changes break."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import Connection, examples
from instep.cli.backend import open_backend
from instep.cli.context import CHANGES, emit, fail

if TYPE_CHECKING:
    from instep.cli.screen import Screen


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples("instep impact --manifest target/manifest.json", "instep impact --sql views --dialect trino")
    )(impact)


def impact(
    connection: Connection = None,
    manifest: Annotated[Path | None, typer.Option("--manifest", help="The manifest.json of a dbt project.")] = None,
    sql: Annotated[
        list[Path] | None, typer.Option("--sql", help="A folder of .sql files, or one file; repeatable.")
    ] = None,
    dialect: Annotated[
        str, typer.Option("--dialect", help="The SQL dialect; the default is that of the dbt adapter, or spark.")
    ] = "",
    change: Annotated[str, typer.Option("--change", help="Only this change, whatever was decided about it.")] = "",
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 2 if something breaks.")] = False,
) -> None:
    """Show which downstream views and models the open changes break.

    Changes under review are judged as if they were approved. Without --manifest and --sql the models come from
    `downstream` of the connection in instep.yml; with --server, from the server's project.
    """
    from instep.backends.calls import impact_of
    from instep.plans.downstream import Downstream, read_models

    given = Downstream(manifest, tuple(sql or ()), dialect)
    with open_backend() as backend:
        name = backend.connection(connection)
        document = impact_of(backend, name, read_models(given) if given else None, dialect, change)
    emit({"connection": name, **document}, lambda out: _show(out, document))
    if exit_code and document["breaks"]:
        raise fail(CHANGES)


def _show(out: Screen, document: Mapping[str, Any]) -> None:
    from instep.plans.downstream import counts, models_of

    if not document["changes"]:
        out.print("no open or planned changes")
    for one in document["changes"]:
        style = "red" if one["breaks"] else "yellow" if one["silent"] or one["unknown"] else ""
        out.write(f"{one['id']}  {one['summary']}: {counts(one)}", style)
    if unsafe := [v for v in document["models"] if v["verdict"] != "safe"]:
        _grid(out, unsafe)
    safe = sum(v["verdict"] == "safe" for v in document["models"])
    out.write(f"{models_of(len(document['models']))}, {safe} safe", "dim")


def _grid(out: Screen, models: Sequence[Mapping[str, Any]]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell
    from instep.plans.downstream import WORDS

    words = dict(WORDS)
    grid = Grid("model", "verdict", "change", "column", "where", "why", box=None, header_style="bold")
    for model in models:
        for f in model["findings"]:
            where = f"{model['file']}:{f['line']}" if f["line"] else model["file"]
            style = "red" if f["level"] == "breaks" else "yellow"
            grid.add_row(
                cell(model["name"]),
                cell(words[f["level"]], style=style),
                cell(f["change"]),
                cell(f["output"]),
                cell(where),
                cell(f["why"]),
            )
    out.print(grid)
