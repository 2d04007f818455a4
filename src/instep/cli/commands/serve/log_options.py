"""The logging options of `instep server` and `instep worker`."""

from __future__ import annotations

from typing import Annotated

import typer

FORMATS = ("auto", "json", "text")
LEVELS = ("debug", "info", "warning", "error")


def _one_of(value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(known)}")
    return value


LogFormat = Annotated[
    str,
    typer.Option(
        "--log-format",
        envvar="INSTEP_LOG_FORMAT",
        callback=lambda value: _one_of(value, FORMATS),
        help="json, text, or auto: text on a terminal, else JSON (on standard error).",
    ),
]
LogLevel = Annotated[
    str,
    typer.Option(
        "--log-level",
        envvar="INSTEP_LOG_LEVEL",
        callback=lambda value: _one_of(value, LEVELS),
        help="The lowest level that is logged: debug, info, warning or error.",
    ),
]
