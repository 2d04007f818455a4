"""`instep connector ...`: write a connector, run it on this machine, and inspect what it sends."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from instep.cli.arguments import examples
from instep.cli.context import confirm, emit, fail, options, say
from instep.errors import Blocked

Configuration = Annotated[
    Path | None,
    typer.Option("--configuration", help="The configuration; the default is configuration.json beside connector.py."),
]
State = Annotated[
    Path | None,
    typer.Option("--state", help="The state to start from and to update; the default is files/state.json."),
]
Policy = Annotated[
    str,
    typer.Option(
        "--policy", help="The policy for schema changes: a preset, or a file in the form of an entry of policies:."
    ),
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME", help="An environment variable that the connector may read; repeatable."),
]
Folder = Annotated[Path, typer.Argument(metavar="PATH", help="The folder of connector.py.")]
connector = typer.Typer(
    help="Write and test a connector of your own.\n\nSee docs/guides/connectors.md.",
    epilog=examples("instep connector init crm", "instep connector debug crm"),
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(connector, name="connector")


@connector.command(epilog=examples("instep connector init", "instep connector init connectors/crm"))
def init(folder: Folder = Path()) -> None:
    """Create a connector that runs as it is."""
    from instep.project.connector_starter.write import write_connector

    written = write_connector(folder)
    emit({"files": list(map(str, written))}, lambda out: out.print("\n".join(f"wrote {file}" for file in written)))
    where = "" if folder == Path() else f" {folder}"
    say(f"next: `instep connector debug{where}` runs it into {folder / 'files' / 'warehouse.db'}")


@connector.command(
    epilog=examples("instep connector debug", "instep connector debug crm --policy approve --env CRM_TOKEN")
)
def debug(
    folder: Folder = Path(),
    configuration: Configuration = None,
    state: State = None,
    policy: Policy = "allow_all",
    env: Variables = None,
) -> None:
    """Run a connector into files/warehouse.db and show what it did.

    Starts from the state in files/state.json and shows operations, schema changes and rows. It is the same sync that a
    connection runs.
    """
    from instep.cli.commands.set_up.connector_trial import try_out
    from instep.project.files.workbench import workbench

    bench = workbench(folder, configuration, state, policy, env or ())
    try_out(bench, bench.warehouse, own_state=True)


@connector.command(epilog=examples("instep connector run", "instep connector run crm --destination /data/lake"))
def run(
    folder: Folder = Path(),
    configuration: Configuration = None,
    destination: Annotated[
        Path | None,
        typer.Option(
            "--destination", "-d", help="A folder that becomes an Iceberg lake, or X.duckdb; the default is files/lake."
        ),
    ] = None,
    policy: Policy = "allow_all",
    env: Variables = None,
) -> None:
    """Sync a connector into its own destination, without an instep.yml.

    The destination keeps the connector's state.
    """
    from instep.cli.commands.set_up.connector_trial import try_out
    from instep.project.files.workbench import workbench

    bench = workbench(folder, configuration, policy=policy, variables=env or ())
    try_out(bench, bench.target(destination), own_state=False)


@connector.command(epilog=examples("instep connector check", "instep connector check crm --state files/state.json"))
def check(
    folder: Folder = Path(), configuration: Configuration = None, state: State = None, env: Variables = None
) -> None:
    """Compare a connector's `schema()` with the records that it sends.

    Finds names that look misspelt, columns that are mostly empty and types that change. No destination is needed. Exits
    with 1 if something is most likely wrong.
    """
    from instep.cli.commands.set_up.connector_trial import check_sent, show_findings
    from instep.project.files.workbench import workbench

    bench = workbench(folder, configuration, state, variables=env or ())
    counts, findings = check_sent(bench, bench.read_state() if state else {})
    data = {"operations": asdict(counts), "findings": [asdict(f) for f in findings]}
    emit(data, lambda out: show_findings(out, counts, findings))
    if any(f.severity == "warn" for f in findings):
        raise fail(1)


@connector.command(epilog=examples("instep connector reset", "instep connector reset crm --table event --yes"))
def reset(
    folder: Folder = Path(),
    table: Annotated[
        str,
        typer.Option("--table", "-t", help="Drop only this table; the state of all tables is deleted as well."),
    ] = "",
) -> None:
    """Delete files/warehouse.db and files/state.json, to start over.

    Asks first. With --table the other tables keep their rows, and receive them again in the next run: only the
    connector knows which part of its state belongs to which table.
    """
    from instep.cli.commands.set_up.connector_trial import forget, forget_table
    from instep.project.files.workbench import workbench

    bench = workbench(folder)
    what = f"table {table} of {bench.warehouse.path}" if table else str(bench.warehouse.path)
    if not confirm(f"Delete {what} and {bench.state}?"):
        raise Blocked("nothing was deleted", hint="pass --yes where nobody can answer")
    gone = forget_table(bench, table) if table else forget(bench)
    lines = [f"deleted {name}" for name in gone] or ["there was nothing to delete"]
    emit({"forgotten": gone}, lambda out: out.print("\n".join(lines)))
    if table:
        say("the state covered all tables: the next debug run sends everything again, by key")


@connector.command(epilog=examples("instep connector demo --project connector-demo"))
def demo() -> None:
    """Run five syncs of a connector whose records change shape."""
    from instep.cli.commands.set_up.connector_story import play

    play(options.project)
