"""The console script: a command goes to the project's resident engine, or runs here where there is none.

Until that is decided nothing is imported but what the decision takes.
"""

from __future__ import annotations

import os
import re
import sys
from itertools import takewhile
from pathlib import Path
from typing import NoReturn

from instep.allocators import be_frugal
from instep.engine.address import PROJECT_FILE, RESIDENT, project_folder, runtime_place

_IN_PROCESS = ("--no-engine", "--help", "-h", "--version")
"""Options with which a command runs in this process."""
_STARTS = frozenset(
    {
        "apply",
        "approve",
        "backfill",
        "changes",
        "detect",
        "history",
        "maintain",
        "plan",
        "query",
        "quarantine",
        "repair",
        "replay",
        "restore",
        "status",
        "sync",
        "tables",
        "undo",
        "verify",
    }
)
"""Commands for which an engine is started where the variable says `on`; all go to one that is there."""
_ON_SPARK = frozenset({"sync", "backfill"})
"""Commands for which an engine is started on a terminal where Spark reads the rows: its session outlives them."""
_NEVER = frozenset({"engine", "server", "ui", "worker", "demo", "init", "version", "connector"})
"""Commands that live long, make a project, or are about the engine itself."""
_HEEDED = frozenset(
    {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONUTF8", "PYTHONIOENCODING", "FORCE_COLOR"}
)
"""Variables that begin as below, and that an engine heeds."""
_READ_ONCE = (
    "DUCKDB_", "FSSPEC_", "LD_", "OPENSSL_", "PSYCOPG_", "PYICEBERG_", "PYTHON", "TERMINAL_WIDTH", "TYPER_",
)  # fmt: skip
"""Prefixes of variables that are read once in a process, so that a command with one has a process of its own."""
_OPEN_FILE = re.compile(r"(-\w|--[\w-]+=)?(/dev/fd/|/proc/self/)")
"""Beginnings of arguments that name open files of this process, as `<(command)` and `--out=>(command)` do."""
STARTS = (
    "started this project's engine, which keeps Spark warm for later commands: "
    "`instep engine stop` ends it, --no-engine runs a command without it\n"
)
"""Message to a person who has not asked for an engine."""
_JOINED = re.compile(r"-[yh][a-zA-Z]")
"""Short options that are joined, in which neither a command nor a project is looked for here."""
_VALUED = ("--project", "-p", "--output", "--server")


def run() -> NoReturn:
    """Run the command line and end with its exit code."""
    open_closed_streams()
    forbid_core_files()
    arguments = sys.argv[1:]
    if (project := _resident_project(arguments)) is not None:
        from instep.engine.client import NoEngine
        from instep.engine.client import run as run_in_engine

        try:
            code = run_in_engine(
                arguments, project, starts=_starts_engine(arguments, project), says="" if _is_requested() else STARTS
            )
        except NoEngine:
            pass  # it runs here
        except KeyboardInterrupt:
            sys.stderr.write("interrupted\n")
            os._exit(130)
        else:
            sys.stdout.flush()
            os._exit(code)
    be_frugal()
    from instep.cli.main import run as run_in_process

    run_in_process(arguments)


def open_closed_streams() -> None:
    """Open the null device as each standard stream that the caller has closed: else the next file that is opened, such
    as the store, would take its number, and get what is written there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it lives as long as we do


def forbid_core_files() -> None:
    """Have a crash of this process or of its children, as the JVM, write no core file: its passwords would be in it."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _starts_engine(arguments: list[str], project: Path) -> bool:
    """Return whether an engine is started where there is none: it was asked for, or a person is likely to go on."""
    if _is_requested():
        return _command(arguments) in _STARTS
    if {"--cancel", "--dry-run"} & set(arguments):
        return False
    return _command(arguments) in _ON_SPARK and _is_a_person() and _reads_by_spark(project)


def _is_requested() -> bool:
    return os.environ.get(RESIDENT, "").lower() in ("on", "1", "yes", "true")


def _is_a_person() -> bool:
    """Return whether somebody sees what the command says: a schedule or a CI job starts a process that nobody uses."""
    try:
        return os.isatty(0) and os.isatty(2) and not os.environ.get("CI")
    except OSError:
        return False


def _reads_by_spark(project: Path) -> bool:
    """Return whether the engine of the project is Spark, as far as its files tell without being loaded."""
    engine = _line(project / PROJECT_FILE, r"['\"]?engine['\"]?:") or os.environ.get("INSTEP_ENGINE", "")
    engine = engine or _line(project / ".env", r"(?:export\s+)?INSTEP_ENGINE=")
    return engine in ("", "spark")


def _line(file: Path, begins: str) -> str:
    """Return the word after the beginning of a line, "" if there is none."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    match = re.search(rf"^{begins}\s*['\"]?(\w+)", text, re.MULTILINE)
    return match[1] if match else ""


def _resident_project(arguments: list[str]) -> Path | None:
    """Return the folder of the project whose engine may run the command; None if it runs in this process."""
    if not sys.platform.startswith("linux") or os.environ.get(RESIDENT, "").lower() in ("off", "0", "no", "false"):
        return None
    if any(name.startswith(_READ_ONCE) and name not in _HEEDED for name in os.environ):
        return None
    if os.environ.get("INSTEP_SERVER") or any(
        argument == "--server" or argument.startswith("--server=") for argument in arguments
    ):
        return None
    command = _command(arguments)
    if (
        not command
        or command in _NEVER
        or any(one in _IN_PROCESS for one in takewhile(lambda one: one != "--", arguments))
    ):
        return None
    if any(_OPEN_FILE.match(one) or _JOINED.match(one) for one in arguments) or _is_in_background():
        return None
    try:
        project = project_folder(Path(_value(arguments, "--project", "-p") or "."))
    except OSError:
        return None  # the command says what is wrong with the folder
    if project is None or _is_switched_off(project):
        return None
    return project if _starts_engine(arguments, project) or runtime_place().is_dir() else None


def _is_in_background() -> bool:
    """Return whether the shell reads the terminal's keys: a command of an engine would take them from it."""
    try:
        return os.isatty(0) and os.tcgetpgrp(0) != os.getpgrp()
    except OSError:
        return False


def _is_switched_off(project: Path) -> bool:
    """Return whether the project's `engine_idle` is 0."""
    try:
        text = (project / PROJECT_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return bool(re.search(r"^engine_idle:\s*['\"]?0+(\.0*)?\s*(ms|[smhd])?['\"]?\s*(#.*)?$", text, re.MULTILINE))


def _command(arguments: list[str]) -> str:
    """Return the first word that is neither an option nor the value of a global one; "" if there is none."""
    rest = iter(arguments)
    for one in rest:
        if one in _VALUED:
            next(rest, None)
        elif not one.startswith("-"):
            return one
    return ""


def _value(arguments: list[str], long: str, short: str) -> str:
    """Return the last value of an option, "" if it is not there."""
    value = ""
    for one, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if one == "--":
            break
        if one in (long, short):
            value = following
        elif one.startswith(f"{long}="):
            value = one.removeprefix(f"{long}=")
        elif one.startswith(short) and not one.startswith("--"):
            value = one.removeprefix(short)
    return value


if __name__ == "__main__":
    run()
