"""`instep init`, `validate`, `doctor` and `version`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from instep import __version__
from instep.cli.context import emit, fail, open_app, options, say

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.model import Check


def register(app: typer.Typer) -> None:
    app.command(epilog="Examples: instep init · instep init --demo --run")(init)
    app.command(epilog="Example: instep validate --project shop")(validate)
    app.command(epilog="Example: instep doctor")(doctor)
    app.command(epilog="Example: instep version --output json")(version)


def init(
    demo: Annotated[bool, typer.Option("--demo", help="A shop database of its own, and a project for it.")] = False,
    run: Annotated[bool, typer.Option("--run", help="With --demo: play the whole story at once.")] = False,
) -> None:
    """Write a starter instep.yml (or, with --demo, a project with a database to play with)."""
    if demo:
        from instep.cli.demo import make
        from instep.cli.story import play

        make(options.project)
        if run:
            play(options.project)
        return
    from instep.project.write import write_project

    file = write_project(options.project)
    emit({"file": str(file)}, lambda out: out.write(f"wrote {file}"))
    say("next: fill in the source, then `instep validate`, `instep source test`, `instep plan`, `instep sync`")


def validate() -> None:
    """Check instep.yml: keys, values, references between sections, and that every secret can be read."""
    from instep.control.named import check_named

    with open_app() as app:
        project = app.project
        names = project.selected()
        for name in project.model.sources:
            project.source(name)
        for name in project.model.destinations:
            project.destination(name)
        for name in names:
            project.policy(name)
            project.salt(name)
            check_named(project, app.store, name)
    data = {"project": project.name, "connections": list(names)}
    emit(data, lambda out: out.print(f"{project.file} is valid: {len(names)} connection(s)"))


def version() -> None:
    """The version of instep."""
    emit({"version": __version__}, lambda out: out.print(f"instep {__version__}"))


def doctor() -> None:
    """Check this machine and this project: Python, Java, jars, memory, store, warehouse."""
    checks = list(_machine()) + list(_project())

    def render(out: Screen) -> None:
        for check in checks:
            out.print("ok  " if check.ok else "FAIL", style="green" if check.ok else "bold red", end=" ")
            out.print(f"{check.name}: {check.detail}")
            if check.hint and not check.ok:
                out.print(f"     {check.hint}", style="dim")

    emit({"checks": [asdict(c) for c in checks]}, render)
    if not all(c.ok for c in checks):
        raise fail(1)


def _machine() -> list[Check]:
    from instep.errors import InstepError
    from instep.model import Check

    found = [Check("Python", sys.version_info >= (3, 11), sys.version.split()[0], "install Python 3.11 or newer")]
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else Path("java")
    path = shutil.which(str(java))
    text = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr if path else ""
    line = text.splitlines()[0] if text else "not found"
    found.append(Check("Java", bool(text), line, "install Java 17 or newer, or set JAVA_HOME"))
    try:
        from instep.spark.jars import ensure

        found.append(Check("jars", True, f"{len(ensure())} present and verified"))
    except InstepError as error:
        found.append(Check("jars", False, error.message, error.hint))
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    found.append(Check("disk", free > 1, f"{free:.1f} GB free here", "free some space"))
    return found


def _project() -> list[Check]:
    from instep.errors import InstepError
    from instep.model import Check

    try:
        with open_app() as app:
            names = app.project.selected()
            store = app.store
            return [
                Check("project", True, f"{app.project.file}, {len(names)} connection(s)"),
                Check("store", True, f"event {store.events.last_number()}"),
            ]
    except InstepError as error:
        return [Check("project", False, error.message, error.hint)]
