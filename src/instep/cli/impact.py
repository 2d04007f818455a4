"""`instep impact`: which downstream models the open and planned changes break."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.context import CHANGES, emit, fail, one_connection, open_app
from instep.errors import ProjectError

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.lineage.assess import Verdict
    from instep.sync.impact import Report


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Examples: instep impact --manifest target/manifest.json · instep impact --sql views --dialect trino"
    )(impact)


def impact(
    connection: Annotated[str | None, typer.Argument(help="Its name in instep.yml.")] = None,
    manifest: Annotated[Path | None, typer.Option("--manifest", help="dbt's manifest.json.")] = None,
    sql: Annotated[list[Path] | None, typer.Option("--sql", help="A folder of .sql files, or a file.")] = None,
    dialect: Annotated[str, typer.Option("--dialect", help="Of the SQL; else dbt's adapter tells, or spark.")] = "",
    change: Annotated[str, typer.Option("--change", help="Only this change, whatever was decided.")] = "",
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 2 when something breaks.")] = False,
) -> None:
    """Say which views and models the open and planned changes break, change silently or leave alone.

    Held changes are judged as if they were approved. Without --manifest and --sql, `downstream` of the connection in
    instep.yml says where the models are.
    """
    from instep.plans.downstream import Downstream, configured, read_models, reported
    from instep.sync.changes.evolve import preview

    with open_app() as app:
        name = one_connection(app, connection)
        given = Downstream(manifest, tuple(sql or ()), dialect)
        where = given if given else configured(app, name, dialect)
        if not where:
            raise ProjectError(
                f"connection {name} does not say what reads its tables",
                hint="pass --manifest FILE or --sql FOLDER, or set `downstream` in instep.yml",
            )
        models = read_models(where)
        pipe = app.pipe(name)
        found = reported(pipe, preview(pipe), models, change)
    emit({"connection": name, **_document(found)}, lambda out: _show(out, found))
    if exit_code and found.breaks:
        raise fail(CHANGES)


def _document(found: Report) -> dict[str, Any]:
    from instep.plans.downstream import WORDS

    return {
        "breaks": found.breaks,
        "changes": [
            {"id": o.id, "summary": o.summary, "planned": o.planned, **{k: list(o.models.get(k, ())) for k, _ in WORDS}}
            for o in found.outcomes
        ],
        "models": [
            {
                "name": v.model.name, "relation": ".".join(v.model.relation), "kind": v.model.kind,
                "file": v.model.file, "verdict": v.level, "problem": v.model.problem,
                "findings": [asdict(f) for f in v.findings],
            }
            for v in found.verdicts
        ],
    }  # fmt: skip


def _show(out: Screen, found: Report) -> None:
    from instep.plans.downstream import counts, models_of

    if not found.outcomes:
        out.print("no open or planned changes")
    for one in found.outcomes:
        style = "red" if one.models.get("breaks") else "" if one.harmless else "yellow"
        out.write(f"{one.id}  {one.summary}: {counts(one)}", style)
    if told := [v for v in found.verdicts if v.level != "safe"]:
        _grid(out, told)
    safe = sum(v.level == "safe" for v in found.verdicts)
    out.write(f"{models_of(len(found.verdicts))}, {safe} safe", "dim")


def _grid(out: Screen, told: list[Verdict]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell
    from instep.plans.downstream import WORDS

    words = dict(WORDS)
    grid = Grid("model", "verdict", "change", "column", "where", "why", box=None, header_style="bold")
    for verdict in told:
        for f in verdict.findings:
            where = f"{verdict.model.file}:{f.line}" if f.line else verdict.model.file
            style = "red" if f.level == "breaks" else "yellow"
            grid.add_row(
                cell(verdict.model.name), cell(words[f.level], style=style), cell(f.change), cell(f.output),
                cell(where), cell(f.why),
            )  # fmt: skip
    out.print(grid)
