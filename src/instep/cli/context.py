"""What every command shares: the global options, output as text or JSON, questions, and exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from instep.bootstrap import App

FORMAT_VERSION = 1
USAGE = 64
INTERRUPTED = 130
CHANGES = 2
BLOCKED = 3
PARTIAL = 6
LOG_WIDTH = 160
"""Columns where no terminal tells its own: tables in logs are not cut to 80."""


@dataclass
class Options:
    """The global options; one a process."""

    project: Path = Path()
    output: str = "table"
    yes: bool = False
    interactive: bool = True
    color: bool = True


options = Options()


def console(*, stderr: bool = False) -> Console:
    """Where people read: data on stdout, talk on stderr."""
    from rich.console import Console

    no_color = not options.color or bool(os.environ.get("NO_COLOR"))
    out = Console(stderr=stderr, no_color=no_color, highlight=False, soft_wrap=True)
    if not out.is_terminal:
        out.width = LOG_WIDTH
    return out


def open_app() -> App:
    """The project in `--project` or above the current folder."""
    from instep.bootstrap import open_project

    return open_project(options.project)


def emit(data: Any, render: Callable[[Console], None]) -> None:
    """Prints `data` as JSON under `--output json`, else what `render` draws."""
    if options.output == "json":
        document = {"format_version": FORMAT_VERSION, **data}
        sys.stdout.write(json.dumps(document, indent=2, default=str, ensure_ascii=False) + "\n")
    else:
        render(console())


def say(text: str) -> None:
    """Talk: never mixed into data."""
    console(stderr=True).print(text, markup=False)


def confirm(question: str) -> bool:
    """Asks on a terminal; without one, or with --no-input, the answer is no unless --yes was given."""
    if options.yes:
        return True
    if not (options.interactive and sys.stdin.isatty()):
        return False
    return typer.confirm(question, err=True)


def fail(code: int) -> typer.Exit:
    """To be raised when a command has said why already."""
    return typer.Exit(code)


Runner = Callable[[list[str]], int]
_runner: list[Runner] = []


def set_runner(runner: Runner) -> None:
    """How the demo runs commands in this process: told by the entry point."""
    _runner[:] = [runner]


def run_command(arguments: list[str]) -> int:
    """Runs a command as the entry point would; returns its exit code."""
    return _runner[0](arguments)


def one_connection(app: App, name: str | None) -> str:
    """The named connection, or the only one."""
    return app.connection(name)
