"""`instep history` and `schema ...`: the events of a connection, table or column, and earlier schemas.

The lock file of a connection's accepted schema, compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from instep.cli.arguments import Connection, Limit, OfConnection, examples
from instep.cli.backend import open_backend
from instep.cli.context import CHANGES, console, emit, fail, one_connection, open_app, options, say
from instep.cli.render.runs import show_plans
from instep.errors import argument, one_line
from instep.operations.queries.history import GetObjectHistory, GetSchema, ListEvents, ListPlans, ListRuns, ListVersions

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.control.object_history import HistoryEntry, ObjectHistory
    from instep.control.schema_history import SchemaVersion
    from instep.plans.planned import Planned
    from instep.schema.catalog.catalog import Catalog
    from instep.store.catalogs.clones import Copy


SideName = Literal["source", "accepted", "destination"]
FormatName = Literal["table", "json", "sql", "markdown"]
Side = Annotated[SideName, typer.Option("--side", help="The source's, the accepted or the destination's schema.")]
schema = typer.Typer(
    help="Show, compare and lock a schema, as it is or as it was.",
    epilog=examples("instep schema show", "instep schema diff --at 2026-03-31"),
    no_args_is_help=True,
)
_AT = "A time (ISO 8601, UTC without a zone) or an accepted version: 7 or 2.1."


def register(app: typer.Typer) -> None:
    app.command(
        epilog=examples(
            "instep history",
            "instep history --runs",
            "instep history --plans",
            "instep history --schema",
            "instep history public.order.total",
        )
    )(history)
    app.add_typer(schema, name="schema")


def history(
    what: Annotated[
        str | None,
        typer.Argument(
            help="A connection, or one of its tables or columns.", metavar="CONNECTION|SCHEMA.TABLE[.COLUMN]"
        ),
    ] = None,
    connection: OfConnection = None,
    runs: Annotated[bool, typer.Option("--runs", help="Show runs instead of events.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Show versions of the accepted schema.")] = False,
    plans: Annotated[bool, typer.Option("--plans", help="Show applied plans with their steps.")] = False,
    limit: Limit = 30,
) -> None:
    """Show what happened: events, runs, plans and schema versions.

    The newest comes first. Name a table or column to see all of its changes.
    """
    with open_backend() as backend:
        if what is not None and (connection is not None or not backend.has_connection(what)):
            object_history = backend.query(GetObjectHistory(backend.connection(connection), what))
            _emit_trail(object_history, limit)
            return
        name = backend.connection(what or connection)
        if runs:
            rows = [
                {**asdict(one), "engine": _engine(one.detail)}
                for one in backend.items(ListRuns(connection=name), limit)
            ]
            emit({"runs": rows}, lambda out: _lines(out, rows, ("started", "kind", "status", "id", "engine", "error")))
        elif plans:
            rows = [asdict(one) for one in backend.items(ListPlans(connection=name), limit)]
            emit({"plans": rows}, lambda out: show_plans(out, rows))
        elif schema:
            rows = [asdict(one) for one in backend.items(ListVersions(connection=name), limit)]
            emit({"versions": rows}, lambda out: _lines(out, rows, ("version", "label", "at", "who", "run", "why")))
        else:
            rows = [asdict(one) for one in backend.items(ListEvents(connection=name), limit)]
            emit({"events": rows}, lambda out: _events(out, rows))


def _lines(out: Screen, rows: list[dict[str, Any]], keys: tuple[str, ...]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    grid = Grid(*keys, box=None, header_style="bold", padding=(0, 2, 0, 0))
    for row in rows:
        grid.add_row(*(cell(_text(row[k])) for k in keys))
    out.print(grid)


def _events(out: Screen, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        shown = {k: _event_value(v, k) for k, v in row["data"].items() if k != "connection"}
        data = {k: v for k, v in shown.items() if v not in ("", 0)}
        detail = data.pop("summary", "") or data.pop("reason", "")
        more = " ".join(f"{k}={v}" for k, v in data.items())
        out.write(f"{row['at']:%Y-%m-%d %H:%M:%S}  {row['type']:<22} {detail} {more}".rstrip())


def _event_value(value: Any, name: str = "") -> Any:
    """Return the field of an event of this name as one line: of nested counts those that are not 0; of an error its
    first line, for its hint is behind it."""
    if isinstance(value, Mapping):
        parts = ((k, _event_value(v)) for k, v in value.items())
        nested = (f"{k}.{v}" if isinstance(value[k], Mapping) else f"{k}:{v}" for k, v in parts if v not in ("", 0))
        return ",".join(nested)
    if isinstance(value, list | tuple):
        return ",".join(str(_event_value(one)) for one in value)
    if isinstance(value, str):
        return one_line(value.split("\n", 1)[0] if name in _ERRORS else value)
    return "" if value is None else value


_ERRORS = ("error", "reason", "why")
"""Fields of events that may have an error's text."""


def _engine(detail: Mapping[str, Any]) -> str:
    """Return the engine that read a run's rows and its other work, with the address of Spark's page; "" if there was
    neither."""
    from instep.model import EngineUse

    if not (recorded := detail.get("engine")):
        return ""
    use = EngineUse(**recorded)
    return " ".join(filter(None, (str(use), use.page, f"({use.large})" if use.large else "")))


def _text(value: Any) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}" if hasattr(value, "hour") else str(value)


def _emit_trail(object_history: ObjectHistory, limit: int) -> None:
    emit(
        {**asdict(object_history), "entries": [asdict(e) for e in object_history.entries[::-1][:limit]]},
        lambda out: _show_trail(out, object_history, limit),
    )


def _show_trail(out: Screen, object_history: ObjectHistory, limit: int) -> None:
    path = ".".join(filter(None, (object_history.table, object_history.column)))
    out.write(f"{path}{'  (no longer accepted)' if object_history.gone else ''}", "bold")
    if len(object_history.names) > 1:
        out.write(f"  was called {', '.join(n for n in object_history.names if n != path)}", "dim")
    for c in object_history.columns:
        retained = ", kept after its removal" if c.retained else ""
        out.write(f"  {c.column}  {c.type}  since version {c.version} ({c.label}), {_text(c.at)}{retained}")
    for entry in object_history.entries[::-1][:limit]:
        out.write(f"{_text(entry.at)}  {entry.label or '-':<5} {entry.status:<9} {entry.summary}")
        out.write(f"    {_because(entry)}", "dim")


def _because(entry: HistoryEntry) -> str:
    parts = (
        f"by {entry.who}" if entry.who else "",
        f"in run {entry.run}" if entry.run else "",
        f"change {entry.change}" if entry.change else "",
        f"{entry.why} ({entry.rule})" if entry.rule else entry.why,
        f"answered by {entry.decided_by}" if entry.decided_by else "",
    )
    return "; ".join(filter(None, parts))


@schema.command(epilog=examples("instep schema show", "instep schema show --side source --at 2026-03-31 --format sql"))
def show(
    connection: Connection = None,
    side: Side = "accepted",
    at: Annotated[str | None, typer.Option("--at", help=_AT, metavar="TIME|VERSION")] = None,
    form: Annotated[FormatName, typer.Option("--format", help="The output format.")] = "table",
) -> None:
    """Show a schema as it is, or as it was at any time."""
    from instep.schema.catalog.catalog import catalog_from_dict

    with open_backend() as backend:
        version = backend.query(GetSchema(backend.connection(connection), side, at))
    if form == "json":
        options.output = "json"
    copies = [asdict(c) for c in version.copies]
    document = {**asdict(version.known), **version.catalog, "copies": copies}
    catalog = catalog_from_dict(version.catalog)
    emit(document, lambda out: _show_schema(out, version.known, catalog, form, version.copies))


def _show_schema(
    out: Screen, version: SchemaVersion, catalog: Catalog, form: FormatName, clones: Sequence[Copy]
) -> None:
    from instep.schema.planning.explain import to_markdown, to_sql

    if form == "sql":
        out.print(f"-- {_title(version)}\n{to_sql(catalog)}")
    elif form == "markdown":
        out.print(f"# {_title(version)}\n\n{to_markdown(catalog)}", end="")
    else:
        _show_tables(out, version, catalog)
        for copy in clones:
            out.write(f"{copy.line}  (kept: instep table purge {argument('.'.join(filter(None, copy.table)))})", "dim")


def _title(version: SchemaVersion) -> str:
    label = f" ({version.label})" if version.label else ""
    if version.side != "accepted":
        label = f" (accepted: version {version.accepted}{label})" if version.accepted else ""
    number = f"version {version.version}{label}"
    return f"{version.connection}: {version.side} schema, {number}, since {_text(version.at)} UTC"


def _show_tables(out: Screen, version: SchemaVersion, catalog: Catalog) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    out.write(_title(version), "bold")
    for table in catalog.tables:
        named = f"  at the destination: {table.alias}" if version.side == "accepted" and table.alias else ""
        out.write(f"{table.path}{named}{'  (retained after its removal)' if table.retained else ''}", "bold")
        grid = Grid(box=None, show_header=False, padding=(0, 2, 0, 2))
        for c in table.columns:
            alias = c.alias if c.alias != c.name else ""
            marks = (f"key {c.key}" if c.key else "", "" if c.nullable else "not null", "kept" if c.retained else "")
            grid.add_row(cell(c.name), cell(c.type), cell(", ".join(filter(None, marks))), cell(alias))
        out.print(grid)


@schema.command(
    epilog=examples("instep schema diff --at 1.0 --at 2.1", "instep schema diff --at 2026-03-31 --side source")
)
def diff(
    at: Annotated[list[str], typer.Option("--at", help=f"{_AT} Twice: from and to; once: from then until now.")],
    connection: Connection = None,
    side: Side = "accepted",
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 2 if the two differ.")] = False,
) -> None:
    """Show what changed in a schema between two times."""
    from instep.control.schema_history import compare, moment, version_at
    from instep.schema.changes.describe import change_to_dict

    if len(at) > 2:
        raise typer.BadParameter("give one or two times", param_hint="--at")
    with open_app() as app:
        name = one_connection(app, connection)
        first, last = (version_at(app.store, name, side, when) for when in (*map(moment, at), None)[:2])
        comparison = compare(app.store, first, last)
    data = {
        "from": asdict(first),
        "to": asdict(last),
        "breaking": comparison.breaking,
        "summary": list(comparison.lines),
        "changes": [change_to_dict(c) for c in comparison.changes],
        "retained_drops": [asdict(g) for g in comparison.retained_drops],
    }
    emit(data, lambda out: _show_diff(out, first, last, comparison.lines))
    if exit_code and comparison.lines:
        raise fail(CHANGES)


def _show_diff(out: Screen, first: SchemaVersion, last: SchemaVersion, lines: tuple[str, ...]) -> None:
    out.write(f"from {_title(first)}", "dim")
    out.write(f"to   {_title(last)}", "dim")
    for line in lines or ("no changes",):
        out.write(line)


@schema.command(epilog=examples("instep schema lock", "instep schema lock --check"))
def lock(
    connection: Connection = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit with 2 if the file is behind.")] = False,
) -> None:
    """Write the accepted schema to schemas/CONNECTION.lock.yml.

    Commit the file, and review schema changes as its diff.
    """
    from instep.project.files.lock import lock_file, write_lock
    from instep.schema.catalog.catalog import catalog_from_dict
    from instep.schema.contracts.contract import lock_document

    with open_backend() as backend:
        name, root = backend.connection(connection), backend.folder
        version = backend.query(GetSchema(name))
    document = lock_document(name, catalog_from_dict(version.catalog))
    lines = lock_lines(root, document, "accepted")
    if not check and lines:
        write_lock(root, document)
    file = lock_file(root, name).relative_to(root)
    data = {"connection": name, "file": str(file), "version": version.version, "label": version.label, "diff": lines}
    emit(data, lambda out: show_lock(out, lines, "" if check else f"{file} is {'written' if lines else 'up to date'}"))
    if check and lines:
        _say_lock(name)
        raise fail(CHANGES)


def show_lock(out: Screen, lines: Sequence[str], done: str = "") -> None:
    """Print the diff of the lock file, then what was done about it."""
    for line in lines:
        out.write(line, {"+": "green", "-": "red"}.get(line[:1], "dim"))
    if done or not lines:
        out.write(done or "the lock file is up to date")


def show_check(planned: Planned, behind: Sequence[str]) -> None:
    """End `plan --check`: what is behind and how to go on, and exit code 2 if anything is."""
    if options.output == "table":
        show_lock(console(), behind, "" if behind else "accepted schema and lock file are up to date")
    if behind:
        if planned.unaccepted and planned.begun:
            say("a sync, or `instep apply`, accepts the changes that the policy applies or a person has approved")
        _say_lock(planned.connection)
        raise fail(CHANGES)


def _say_lock(connection: str) -> None:
    if options.output == "table":
        say(f"`instep schema lock {argument(connection)}` writes the lock file: commit it")


def lock_lines(root: Path, document: dict[str, Any], here: str, *, retained: bool = True) -> list[str]:
    """Return the diff from the lock file in this folder to a document; without `retained` columns and tables that were
    kept after their removal do not count."""
    from instep.project.files.lock import lock_diff, lock_file, read_lock
    from instep.schema.contracts.contract import without_retained

    name = document["connection"]
    locked = read_lock(root, name)
    if locked is not None and not retained:
        locked, document = without_retained(locked), without_retained(document)
    return lock_diff(locked, document, locked_as=str(lock_file(root, name).relative_to(root)), now_as=here)


def plan_check(root: Path, made: Planned) -> list[str]:
    """Return what the accepted schema and the lock file lack, line by line; empty if both are up to date. A store
    without an accepted schema, as in CI, compares the lock file with the schema that the source leads to."""
    from instep.schema.contracts.contract import lock_document
    from instep.schema.planning.plan import plan_from_dict

    document = lock_document(made.connection, plan_from_dict(made.document["plan"]).after)
    return [*made.unaccepted, *lock_lines(root, document, "after this plan", retained=made.begun)]
