"""Errors as people and programs read them."""

from __future__ import annotations

import json
import sys

from instep.cli.context import FORMAT_VERSION, console, options
from instep.errors import InstepError


def report(error: InstepError) -> int:
    """Says what went wrong and what to do; returns the exit code."""
    if options.output == "json":
        problem = {
            "format_version": FORMAT_VERSION,
            "type": f"urn:instep:{type(error).__name__}",
            "title": (type(error).__doc__ or "").strip().splitlines()[0],
            "detail": error.message,
            "hint": error.hint,
            "exit_code": error.exit_code,
        }
        sys.stdout.write(json.dumps(problem, indent=2) + "\n")
    else:
        out = console(stderr=True)
        out.print("error:", style="bold red", end=" ")
        out.print(error.message, markup=False)
        if error.hint:
            out.print(f"  {error.hint}", style="dim", markup=False)
    return error.exit_code
