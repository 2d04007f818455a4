"""`instep impact`: which downstream models the open and planned changes break."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.context import CHANGES, emit, fail, one_connection, open_app
from instep.errors import InstepError, ProjectError, SetupError

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.cli.screen import Screen
    from instep.lineage.assess import Verdict
    from instep.lineage.model import Model
    from instep.lineage.shape import Level
    from instep.sync.changes.evolve import Preview
    from instep.sync.impact import Outcome, Report

Line = tuple[str, str]
SHOWN = 5
"""How many models a line names."""
WORDS: tuple[tuple[Level, str], ...] = (
    ("breaks", "breaks"),
    ("silent", "changes silently"),
    ("unknown", "cannot be judged"),
    ("safe", "safe"),
)


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Examples: instep impact --manifest target/manifest.json · instep impact --sql views --dialect trino"
    )(impact)


@dataclass(frozen=True)
class Downstream:
    """Where the models are, and their SQL dialect."""

    manifest: Path | None = None
    sql: tuple[Path, ...] = ()
    dialect: str = ""

    def __bool__(self) -> bool:
        return bool(self.manifest or self.sql)


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
        found = _reported(pipe, preview(pipe), models, change)
    emit({"connection": name, **_document(found)}, lambda out: _show(out, found))
    if exit_code and found.breaks:
        raise fail(CHANGES)


def _reported(pipe: Any, found: Preview, models: list[Model], change: str) -> Report:
    from instep.sync.impact import report

    return report(pipe, found, models, change)


def configured(app: App, connection: str, dialect: str = "") -> Downstream:
    """What `downstream` of the connection says; paths are relative to the project's folder."""
    said, root = app.project.connection(connection).downstream, app.project.root
    manifest = root / Path(said.manifest).expanduser() if said.manifest else None
    return Downstream(manifest, tuple(root / Path(p).expanduser() for p in said.sql), dialect or said.dialect)


def read_models(where: Downstream) -> list[Model]:
    """The models of the manifest and of the folders; SetupError without sqlglot."""
    try:
        from instep.lineage.folder import read_sql
        from instep.lineage.manifest import read_manifest
        from instep.lineage.parse import check_dialect
    except ModuleNotFoundError as error:
        if error.name != "sqlglot":
            raise
        raise SetupError(
            "reading SQL needs the package sqlglot, which is not installed", hint="run pip install 'instep[lineage]'"
        ) from None
    dialect = check_dialect(where.dialect) if where.dialect else ""
    from_dbt = read_manifest(where.manifest, dialect) if where.manifest else []
    return [*from_dbt, *read_sql(where.sql, dialect or "spark")]


def plan_lines(app: App, connection: str, found: Preview) -> list[Line]:
    """One line a change for `plan`; what is wrong with the settings is said and stops nothing."""
    where = configured(app, connection)
    if not where or not found.detection.decisions:
        return []
    try:
        outcomes = _reported(app.pipe(connection), found, read_models(where), "").outcomes
    except InstepError as error:
        return [(f"downstream models are not judged: {error.message}", "yellow")]
    return list(_outcome_lines(outcomes))


def _outcome_lines(outcomes: tuple[Outcome, ...]) -> Iterator[Line]:
    told = [o for o in outcomes if not o.harmless]
    if told:
        yield "Downstream", "bold"
    for one in told:
        style = "red" if one.models.get("breaks") else "yellow"
        yield f"  {one.id} {one.summary}: {_counts(one)}", style


def _counts(one: Outcome) -> str:
    """`breaks 3 models: a, b, c; changes silently 1 model: d`."""
    said = ((word, one.models.get(level, ())) for level, word in WORDS[:3])
    parts = [f"{word} {_models(len(names))}: {_listed(names)}" for word, names in said if names]
    return "; ".join(parts) or "breaks nothing"


def _models(count: int) -> str:
    return f"{count} model{'s' * (count != 1)}"


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _document(found: Report) -> dict[str, Any]:
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
    if not found.outcomes:
        out.print("no open or planned changes")
    for one in found.outcomes:
        style = "red" if one.models.get("breaks") else "" if one.harmless else "yellow"
        out.write(f"{one.id}  {one.summary}: {_counts(one)}", style)
    if told := [v for v in found.verdicts if v.level != "safe"]:
        _grid(out, told)
    safe = sum(v.level == "safe" for v in found.verdicts)
    out.write(f"{_models(len(found.verdicts))}, {safe} safe", "dim")


def _grid(out: Screen, told: list[Verdict]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

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
