"""The frame of every command: the global options, output as text or JSON, questions, and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from instep.cli.text import json_text
from instep.errors import Blocked, InstepError

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.cli.screen import Screen

FORMAT_VERSION = 1
USAGE = 64
INTERRUPTED = 130
CHANGES = 2
BLOCKED = 3
PARTIAL = 6
QUARANTINED = 7
NOTICE_SECONDS = 10.0


@dataclass
class Options:
    """The global options; one a process."""

    project: Path = Path()
    output: str = "table"
    yes: bool = False
    interactive: bool = True
    color: bool = True
    server: str = ""
    command: str = ""

    def reset(self, output: str) -> None:
        """Reset the options to those of a fresh process."""
        vars(self).update(vars(Options(output=output)))


options = Options()


def console(*, stderr: bool = False) -> Screen:
    """Return the console for people: data goes to stdout, messages to stderr."""
    from instep.cli.screen import Screen

    return Screen(stderr=stderr, plain=not options.color or bool(os.environ.get("NO_COLOR")))


def open_app(*, looks_only: bool = False) -> App:
    """Return the project in `--project` or above the current folder. What its command has to tell is told at its end.
    `looks_only`: the command writes nothing, so that a folder that may not be written will do."""
    from instep.bootstrap import open_project

    app = open_project(options.project)
    if looks_only:
        app.looks_only = True
        return app
    app.before_close = _tell
    return app


def _tell(app: App) -> None:
    """Send the lineage and the notices that this command has caused, for a few seconds: the rest is for the next
    command or a worker. What cannot be sent fails no command."""
    try:
        if lineage := app.lineage():
            lineage.send(NOTICE_SECONDS)
    except InstepError as error:
        say(f"lineage was not sent: {error.message}")
    if not app.store.outbox.written:
        return
    try:
        results = app.sender().send(seconds=NOTICE_SECONDS)
    except InstepError as error:
        say(f"notifications were not sent: {error.message}")
        return
    for result in results:
        if result.error:
            say(f"channel {result.delivery.channel} cannot be reached: {result.error}. Run `instep notify log`.")


def emit(data: Any, render: Callable[[Screen], None]) -> None:
    """Print `data` as JSON under `--output json`, else what `render` draws."""
    if options.output == "json":
        write_json(data)
    else:
        render(console())


_gathered: list[list[Mapping[str, Any]]] = []


@contextmanager
def gathered() -> Iterator[list[Mapping[str, Any]]]:
    """Yield the list that takes the JSON documents that the block writes, instead of stdout."""
    _gathered.append([])
    try:
        yield _gathered[-1]
    finally:
        _gathered.pop()


def write_json(data: Mapping[str, Any]) -> None:
    """Write one JSON document to stdout."""
    if _gathered:
        _gathered[-1].append(data)
        return
    sys.stdout.write(json_text({"format_version": FORMAT_VERSION, **data}) + "\n")


def report(error: InstepError) -> int:
    """Report the error and the next step; return the exit code."""
    if options.output == "json":
        title = (type(error).__doc__ or "").strip().splitlines()[0]
        write_problem(type(error).__name__, title, error.message, error.hint, error.exit_code)
    else:
        out = console(stderr=True)
        out.print("error:", style="bold red", end=" ")
        out.print(error.message)
        if error.hint:
            out.print(f"  {error.hint}", style="dim")
    return error.exit_code


def write_problem(kind: str, title: str, detail: str, hint: str, code: int) -> None:
    """Write an error as JSON, or its text to stderr where that cannot be done."""
    try:
        write_json({"type": f"urn:instep:{kind}", "title": title, "detail": detail, "hint": hint, "exit_code": code})
        sys.stdout.flush()
    except OSError:  # standard output is full or gone, which may be what went wrong
        console(stderr=True).write(f"error: {detail}")


def say(text: str, style: str = "") -> None:
    """Write a message to stderr, so that it never mixes with data."""
    console(stderr=True).print(text, style=style)


def confirm(question: str) -> bool:
    """Ask on a terminal; without one, or with --no-input, the answer is no unless --yes was given."""
    if options.yes:
        return True
    if not (options.interactive and sys.stdin.isatty()):
        return False
    return typer.confirm(question, err=True)


def confirm_change(lines: Sequence[str], question: str) -> None:
    """Show what happens and ask, on a terminal; elsewhere the command itself is the answer. Raises Blocked for a no."""
    for line in lines:
        console(stderr=True).write(f"  {line}")
    if options.interactive and not options.yes and sys.stdin.isatty() and not confirm(question):
        raise Blocked("nothing was changed", hint="confirm, or pass --yes")


def fail(code: int) -> typer.Exit:
    """Return an exit without a message: the command has already printed the reason."""
    return typer.Exit(code)


Runner = Callable[[list[str]], int]
_runner: list[Runner] = []


def set_runner(runner: Runner) -> None:
    """Set the function by which the demo runs commands in this process; the entry point calls this."""
    _runner[:] = [runner]


def run_command(arguments: list[str]) -> int:
    """Run a command as the entry point would; returns its exit code."""
    return _runner[0](arguments)


def one_connection(app: App, name: str | None) -> str:
    """Return the named connection, or the only one."""
    return app.connection(name)
