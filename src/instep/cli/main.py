"""The `instep` command: verbs over the same use cases that every other face uses.

Heavy parts are imported inside the commands, so that help appears at once and only commands that move rows
start a JVM.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from instep.cli import changes, demo, look, move, setup, sources
from instep.cli.context import INTERRUPTED, USAGE, options, set_runner
from instep.cli.errors import report
from instep.errors import InstepError

EPILOG = "Start with `instep init --demo`, or `instep init` and edit instep.yml. Exit codes: docs/cli.md."

app = typer.Typer(
    name="instep",
    help="Replicates tables into a lakehouse on Spark and manages their schema changes.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def shared(
    project: Annotated[Path, typer.Option("--project", "-p", help="The folder of instep.yml.")] = Path(),
    output: Annotated[str, typer.Option("--output", help="table or json.", metavar="FORMAT")] = "table",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Answer questions with yes (never drops data).")] = False,
    no_input: Annotated[bool, typer.Option("--no-input", help="Never ask.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text.")] = False,
) -> None:
    if output not in ("table", "json"):
        raise typer.BadParameter(f"{output!r} is neither table nor json", param_hint="--output")
    options.project, options.output, options.yes = project, output, yes
    options.interactive, options.color = not no_input, not no_color


for room in (setup, sources, changes, move, look, demo):
    room.register(app)


def run(arguments: list[str] | None = None) -> None:
    """The console script: maps errors to exit codes (docs/cli.md) and never shows a stack trace for ours."""
    sys.exit(main(arguments))


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    set_runner(main)
    try:
        given = sys.argv[1:] if arguments is None else arguments
        result = app(hoisted(given), standalone_mode=False, prog_name="instep")
        return result if isinstance(result, int) else 0
    except TyperException as error:
        show = getattr(error, "show", None)
        show() if show else print(error, file=sys.stderr)
        return USAGE if error.exit_code == 2 else error.exit_code
    except InstepError as error:
        return report(error)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 0


_VALUED = ("--project", "-p", "--output")
_FLAGS = ("--yes", "-y", "--no-input", "--no-color")


def hoisted(arguments: list[str]) -> list[str]:
    """Global options may stand anywhere before `--`: they are moved to the front."""
    first: list[str] = []
    rest: list[str] = []
    given = iter(arguments)
    for argument in given:
        if argument == "--":
            return [*first, *rest, argument, *given]
        if argument in _FLAGS or argument.startswith(tuple(f"{name}=" for name in _VALUED)):
            first.append(argument)
        elif argument in _VALUED:
            first += [argument, *([value] if (value := next(given, None)) is not None else [])]
        else:
            rest.append(argument)
    return first + rest


if __name__ == "__main__":
    run()
