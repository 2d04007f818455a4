"""The `instep` command: verbs over the same use cases that every other face uses.

Heavy parts are imported inside the commands, so that help appears at once and only commands that move rows
start a JVM.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import sys
import threading
import traceback
from collections import deque
from contextlib import suppress
from copy import copy
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from instep import __version__
from instep.cli.arguments import OrderedCommands, arrange, name_of
from instep.cli.backend import refuse_local
from instep.cli.commands import register_commands
from instep.cli.context import INTERRUPTED, USAGE, console, options, report, set_runner, write_problem
from instep.errors import InstepError, check_current_folder, visible


def report_usage(error: TyperException) -> int:
    """Report a command line that was not understood, as `report` does."""
    if options.output == "json":
        write_problem("Usage", "The command line was not understood.", error.format_message(), "see --help", USAGE)
    elif show := getattr(error, "show", None):
        show()
    else:
        console(stderr=True).print(error.format_message())
    return USAGE


EPILOG = (
    "Start with `instep init --demo`, or `instep init` and edit instep.yml. Exit codes: docs/reference/commands.md."
)

app = typer.Typer(
    name="instep",
    cls=OrderedCommands,
    help="Replicate tables into a lakehouse and manage their schema changes.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        print(f"instep {__version__}")
        raise typer.Exit


@app.callback()
def shared(
    context: typer.Context,
    project: Annotated[Path, typer.Option("--project", "-p", help="The folder of instep.yml.")] = Path(),
    output: Annotated[
        str, typer.Option("--output", help="The output format: table or json.", metavar="FORMAT")
    ] = "table",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Answer yes to questions; never drops data.")] = False,
    no_input: Annotated[bool, typer.Option("--no-input", help="Never ask questions.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Print plain text without colors.")] = False,
    server_url: Annotated[
        str,
        typer.Option(
            "--server", envvar="INSTEP_SERVER", metavar="URL", help="Run the command on this server, through its API."
        ),
    ] = "",
    no_engine: Annotated[
        bool, typer.Option("--no-engine", help="Run in a process of its own, not in the project's engine.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version of instep and exit.")
    ] = False,
) -> None:
    if output not in ("table", "json") and not (output == "github" and context.invoked_subcommand == "migration"):
        raise typer.BadParameter(f"{output!r} is not a format: use table or json", param_hint="--output")
    options.project, options.output, options.yes = project, output, yes
    options.interactive, options.color, options.server = not no_input, not no_color, server_url
    refuse_local(options.command)


register_commands(app)
arrange(app)


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run the console script: map errors to exit codes (docs/reference/commands.md), without a stack trace for ours.
    One command makes little garbage and imports some 300,000 objects, and collecting among them costs 0.07 s: hence
    the higher threshold. Long-lived objects are collected as often as with a threshold of 100,000."""
    gc.set_threshold(500_000, 4, 100)
    try:
        leave(main(arguments))
    except Exception as error:
        from instep.logs import clean, without_values

        print(visible(clean(without_values(traceback.format_exc(), error))), file=sys.stderr, end="")
        leave(1)


def leave(code: int) -> NoReturn:
    """End the process as the interpreter does: threads end, exit functions run, output is flushed. Only what is
    imported is not taken apart object by object, which takes 0.6 s after a sync."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    set_runner(main)
    given = hoisted(sys.argv[1:] if arguments is None else arguments)
    options.reset(output="json" if "--output=json" in given or ("--output", "json") in pairwise(given) else "table")
    options.command = command_of(given)
    stdout = sys.stdout
    try:
        _check_folder(given)
        program = with_only(options.command.partition(" ")[0])
        result = program(given, standalone_mode=False, prog_name="instep")
        sys.stdout.flush()
        if result == INTERRUPTED:
            print("interrupted", file=sys.stderr)
        return result if isinstance(result, int) else 0
    except TyperException as error:
        return report_usage(error)
    except UnicodeEncodeError:
        odd = [word for word in given if not _is_text(word)]
        if not odd:
            raise
        return report_usage(typer.BadParameter(f"{visible(odd[0])} is not UTF-8 text: correct it, or set LC_ALL"))
    except InstepError as error:
        return report(error)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return _seen_enough()
    except SystemExit:
        if sys.stdout is stdout:
            raise
        sys.stdout = stdout  # typer puts another in its place, and ends, where a write finds nobody who reads
        return _seen_enough()
    except OSError as error:
        return report(_of_system(error))


def _of_system(error: OSError) -> InstepError:
    """Return what the system has refused as an error of ours."""
    try:
        check_current_folder()
    except InstepError as gone:
        return gone
    what = f"{error.filename}: " if error.filename else ""
    return InstepError(f"{what}{error.strerror or error}", hint="check the path, and that this account may use it")


def _is_text(word: str) -> bool:
    """Return whether a word of the command line could be decoded: other bytes come as halves of characters."""
    return not any("\ud800" <= one <= "\udfff" for one in word)


def _seen_enough() -> int:
    """Write nothing more to an output whose reader has gone, which is no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


_VALUED = ("--project", "-p", "--output", "--server")
_FLAGS = ("--yes", "-y", "--no-input", "--no-color", "--no-engine")
_ATTACHED = ("-p", *(f"{name}=" for name in _VALUED))
"""Beginnings of options that bring their value along."""
_JOINED = re.compile(r"-([yh])([a-zA-Z].*)", re.DOTALL)
"""A flag before other short options, as in `-yp`: every command knows it."""


def _check_folder(given: list[str]) -> None:
    """Refuse `-p=shop`: a short option takes `=shop` as its value, and `init` would create that folder."""
    for argument in takewhile(lambda word: word != "--", given):
        if argument.startswith("-p="):
            name = argument.removeprefix("-p=")
            message = f"{argument} would be the folder '={name}': write -p {name}, or --project={name}"
            raise typer.BadParameter(message, param_hint="-p")


def command_of(given: list[str]) -> str:
    """Return the command of a command line whose global options stand first, such as `changes map`; "" if its help is
    asked for."""
    words: list[str] = []
    rest = iter(given)
    for argument in rest:
        if argument == "--":
            break
        if argument in ("--help", "-h"):
            return ""
        if argument in _VALUED:
            next(rest, None)
        elif not argument.startswith("-"):
            words.append(argument)
    families = {group.name for group in app.registered_groups}
    return " ".join(words[: 2 if words[:1] and words[0] in families else 1])


def with_only(word: str) -> typer.Typer:
    """Return the program with the one command, or family of commands, of that name; the whole if there is none.

    Typer makes the parameters of all commands before it looks at which one is asked for: 0.05 s for ours."""
    commands = [c for c in app.registered_commands if name_of(c) == word]
    families = [group for group in app.registered_groups if group.name == word]
    if not commands and not families:
        return app
    program = copy(app)
    program.registered_commands, program.registered_groups = commands, families
    return program


def hoisted(arguments: list[str]) -> list[str]:
    """Return the arguments with the global options moved to the front; they may stand anywhere before `--`. An
    option joined to its value moves alone."""
    first: list[str] = []
    rest: list[str] = []
    given = deque(arguments)
    while given:
        argument = given.popleft()
        if argument == "--":
            return [*first, *rest, argument, *given]
        if joined := _JOINED.fullmatch(argument):
            given.extendleft((f"-{joined[2]}", f"-{joined[1]}"))
        elif argument in _VALUED:
            first += [argument, *([given.popleft()] if given else [])]
        elif argument in _FLAGS or argument.startswith(_ATTACHED):
            first.append(argument)
        else:
            rest.append(argument)
    return first + rest


if __name__ == "__main__":
    run()
