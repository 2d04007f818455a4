"""`instep doctor`: find problems of this machine and project, each with the next step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.arguments import examples
from instep.cli.context import emit, fail, open_app

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.cli.screen import Screen
    from instep.monitoring.doctor import Finding

_STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("instep doctor", "instep doctor --connect", "instep doctor --connection shop"))(doctor)


def doctor(
    connect: Annotated[bool, typer.Option("--connect", help="Also connect to every source and destination.")] = False,
    connection: Annotated[
        str | None,
        typer.Option("--connection", "-c", help="Also connect to the source and destination of this connection."),
    ] = None,
) -> None:
    """Check this machine, the project and its state store.

    Each line is ok, warn or bad, and names the next command. Exits with 1 if a line is bad.
    """
    findings = list(_run_checks(connect, connection))
    counts = {state: sum(f.state == state for f in findings) for state in _STYLES}
    emit({"checks": [{**asdict(f), "ok": f.ok} for f in findings], "counts": counts}, lambda out: _show(out, findings))
    if counts["bad"]:
        raise fail(1)


def _run_checks(connect: bool, connection: str | None) -> Iterator[Finding]:
    from instep.errors import InstepError
    from instep.monitoring import doctor as look
    from instep.monitoring.doctor import Finding
    from instep.project.project import ENGINE

    engine, findings = os.environ.get(ENGINE, ""), list[Finding]()
    try:
        with open_app(looks_only=True) as app:
            engine = app.project.engine
            findings += look.project(app)
            if all(f.ok for f in findings if f.name == "store"):
                findings.append(look.clock(app.store))
                findings += _logs(app)
            if connect or connection:
                findings += look.reached(app, connection)
    except InstepError as error:
        findings.append(look.Finding("project", "bad", error.message, error.hint))
    yield from look.machine(Path.cwd(), engine)
    yield from findings


def _logs(app: App) -> Iterator[Finding]:
    """Yield the state of the logs that sources keep for connections that follow them."""
    from instep.bootstrap.app import log_status
    from instep.cli.commands.set_up.log import line
    from instep.monitoring.doctor import Finding

    for name in app.project.selected():
        if app.project.follows_log(name):
            status = log_status(app, name)
            state = "bad" if status["trouble"] else "ok"
            yield Finding(f"log of {name}", state, line(status), status.get("hint", ""))  # type: ignore[arg-type]


def _show(out: Screen, findings: list[Finding]) -> None:
    for one in findings:
        out.print(f"{one.state:4}", style=_STYLES[one.state], end=" ")
        out.print(f"{one.name}: {one.detail}")
        if one.hint and one.state != "ok":
            out.print(f"     {one.hint}", style="dim")
