"""`instep engine`: the process that runs this project's commands, with everything imported and Spark's session warm."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from instep.cli.arguments import examples
from instep.cli.context import emit, options, say
from instep.errors import ProjectError, SetupError

if TYPE_CHECKING:
    from instep.cli.screen import Screen

_NONE = "no engine runs for this project: start one with `instep engine start`"


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Show, start or stop the process that runs this project's commands.",
        epilog=examples("instep engine status"),
        no_args_is_help=True,
    )
    group.command(epilog=examples("instep engine status", "instep engine status --output json"))(status)
    group.command(epilog=examples("instep engine start"))(start)
    group.command(epilog=examples("instep engine stop"))(stop)
    app.add_typer(group, name="engine")


def status() -> None:
    """Show the engine of this project: its commands, memory and Spark session.

    With `engine: spark` the first sync on a terminal starts it. INSTEP_RESIDENT=on lets any first command start it. It
    ends after `engine_idle` without work.
    """
    from instep.engine.client import ask

    state = ask(_project(), "status")
    emit(_document(state), lambda out: _show(out, state))


def start() -> None:
    """Start the engine, in which later commands of the project run.

    They start at once and reuse its warm Spark session. --no-engine and INSTEP_RESIDENT=off run commands without it.
    """
    from instep.engine.client import NoEngine, ask
    from instep.engine.client import start as start_engine

    project = _project()
    if ask(project, "status") is None:
        try:
            start_engine(project)
        except NoEngine as error:
            raise SetupError(
                f"the engine of {project} does not start: {str(error).strip() or 'it gave no reason'}",
                hint="--no-engine runs commands without it",
            ) from error
    status()


def stop() -> None:
    """Stop the engine once its running commands have ended.

    An engine that does not answer is killed, together with the commands that it runs.
    """
    from instep.engine.client import stop as stop_engine

    state, is_killed = stop_engine(_project(), say)
    running = len(state["commands"]) if state else 0
    text = f"the engine ends with its last command; {running} run" if running else "the engine stops"
    ended = "the engine was killed; run its commands again to continue what they started"
    emit(_document(state), lambda out: out.write(text if state else ended if is_killed else _NONE))


def _project() -> Path:
    from instep.engine.address import project_folder

    if (path := project_folder(options.project)) is None:
        raise ProjectError(
            f"no instep.yml in {options.project.resolve()} or above it",
            hint="run it in a project's folder, or name it with --project",
        )
    return path


def _document(state: dict[str, Any] | None) -> dict[str, Any]:
    return {"running": False} if state is None else {"running": True, **state}


def _show(out: Screen, state: dict[str, Any] | None) -> None:
    if state is None:
        out.write(_NONE)
        return
    now = time.time()
    out.write(f"process {state['pid']}, for {_span(now - state['since'])}, {state['memory_bytes'] / 2**20:,.0f} MB")
    out.write(f"project {state['project']}")
    out.write(f"Spark   {state['spark']}")
    for one in state["commands"]:
        out.write(f"runs    process {one['pid']}, for {_span(now - one['since'])}")
    if state["stopping"]:
        out.write(f"ends    with its last command: {state['stopping']}")
    elif not state["commands"]:
        left = state["ends_after_seconds"] - state["idle_seconds"]
        out.write(f"idle    {_span(state['idle_seconds'])}; ends in {_span(max(0, left))} (engine_idle)")


def _span(seconds: float) -> str:
    """Return a span of time for people, such as `1h 05m`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m" if hours else f"{minutes}m {rest:02}s" if minutes else f"{rest}s"
