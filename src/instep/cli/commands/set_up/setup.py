"""`instep init`, `validate` and `version`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from instep import __version__
from instep.cli.arguments import examples
from instep.cli.context import emit, open_app, options, say
from instep.errors import ProjectError

if TYPE_CHECKING:
    from instep.project.project import Project


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("instep init", "instep init --demo --run"))(init)
    app.command(epilog=examples("instep validate --project shop"))(validate)
    app.command(epilog=examples("instep version --output json"))(version)


def init(
    demo: Annotated[
        bool, typer.Option("--demo", help="Create a project with a shop database to try instep on.")
    ] = False,
    run: Annotated[bool, typer.Option("--run", help="With --demo: run the whole demo at once.")] = False,
) -> None:
    """Create instep.yml, or with --demo a project with its own database."""
    if demo:
        from instep.cli.commands.set_up.demo import make
        from instep.cli.commands.set_up.story import play

        make(options.project)
        if run:
            play(options.project)
        return
    from instep.project.files.starter import write_project

    file = write_project(options.project)
    emit({"file": str(file)}, lambda out: out.write(f"wrote {file}"))
    say("next: fill in the source, then `instep validate`, `instep source test`, `instep plan`, `instep sync`")


def _sections(project: Project) -> tuple[tuple[Callable[[str], object], Iterable[str]], ...]:
    model = project.model
    return (
        (project.source, model.sources),
        (project.destination, model.destinations),
        (project.channel, model.channels),
    )


def _open_all(openers: Iterable[Callable[[], object]]) -> None:
    """Call all of them; raises one ProjectError with what is wrong with any of them."""
    errors = []
    for opened in openers:
        try:
            opened()
        except ProjectError as error:
            errors.append(error)
    if errors:
        hints = dict.fromkeys(error.hint for error in errors if error.hint)
        raise ProjectError("\n".join(error.message for error in errors), hint="\n  ".join(hints))


def validate() -> None:
    """Check instep.yml: keys, values, references and secrets."""
    from instep.control.resources.log_names import check_log_names
    from instep.control.selection.unknown_tables import check_named

    with open_app(looks_only=True) as app:
        project = app.project
        names = project.selected()
        _open_all(partial(opened, name) for opened, listed in _sections(project) for name in listed)
        for name in names:
            project.policy(name)
            project.salt(name)
            check_named(project, app.store, name)
            check_log_names(project, app.store, name)
    data = {"project": project.name, "connections": list(names)}
    emit(data, lambda out: out.print(f"{project.file} is valid: {len(names)} connection(s)"))


def version() -> None:
    """Show the version of instep."""
    emit({"version": __version__}, lambda out: out.print(f"instep {__version__}"))
