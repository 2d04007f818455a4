"""Errors as people and programs read them."""

from __future__ import annotations

from typer.exceptions import TyperException

from instep.cli.context import USAGE, console, options, write_json
from instep.errors import InstepError


def report(error: InstepError) -> int:
    """Says what went wrong and what to do; returns the exit code."""
    if options.output == "json":
        title = (type(error).__doc__ or "").strip().splitlines()[0]
        _problem(type(error).__name__, title, error.message, error.hint, error.exit_code)
    else:
        out = console(stderr=True)
        out.print("error:", style="bold red", end=" ")
        out.print(error.message)
        if error.hint:
            out.print(f"  {error.hint}", style="dim")
    return error.exit_code


def report_usage(error: TyperException) -> int:
    """As `report`, for a command line that was not understood."""
    if options.output == "json":
        _problem("Usage", "The command line was not understood.", error.format_message(), "see --help", USAGE)
    elif show := getattr(error, "show", None):
        show()
    else:
        console(stderr=True).print(error.format_message())
    return USAGE


def _problem(kind: str, title: str, detail: str, hint: str, code: int) -> None:
    write_json({"type": f"urn:instep:{kind}", "title": title, "detail": detail, "hint": hint, "exit_code": code})
