"""`instep detector ...`: status and options of scheduled detection, and enabling it again."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import Connection, OfConnection, TablePattern, examples
from instep.cli.backend import open_backend
from instep.cli.context import emit
from instep.errors import InstepError

if TYPE_CHECKING:
    from instep.backends.protocol import Backend
    from instep.cli.screen import Screen
    from instep.control.queries.work import DetectorDetails

detector = typer.Typer(
    help="Manage the scheduled detection of schema changes.",
    epilog=examples("instep detector status shop"),
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(detector, name="detector")


@detector.command(epilog=examples("instep detector status shop"))
def status(connection: Connection = None) -> None:
    """Show whether scheduled detection runs, waits, is off, or failed."""
    with open_backend() as backend:
        details, data = _read(backend, backend.connection(connection))
    emit(data, lambda out: _show(out, details))


def _read(backend: Backend, connection: str) -> tuple[DetectorDetails, dict[str, Any]]:
    """Return the detector, and its document with the whole jobs of its detections."""
    from instep.operations.queries.work import GetDetector, GetQueuedJob

    detector_details: DetectorDetails = backend.query(GetDetector(connection))
    whole = {
        name: asdict(backend.query(GetQueuedJob(one.job))) if one else None
        for name, one in (("job", detector_details.current), ("last", detector_details.last))
    }
    own = {name: value for name, value in asdict(detector_details).items() if name != "current"}
    return detector_details, {
        "detector": {**own, "internal_disabled": detector_details.internal_disabled_detect_schema_changes, **whole}
    }


def _show(out: Screen, details: DetectorDetails) -> None:
    out.write(f"{details.connection}: {details.state}, every {details.frequency:,} s", "bold")
    if details.internal_disabled_detect_schema_changes:
        out.write(f"  switched itself off: {details.reason}", "yellow")
        out.write(f"  resolve the problem, then run `instep detector enable {details.connection}`", "dim")
    if details.next_due:
        out.write(f"  next at {details.next_due:%Y-%m-%d %H:%M:%S} UTC")
    if details.last and details.last.ended:
        out.write(f"  last at {details.last.ended:%Y-%m-%d %H:%M:%S} UTC: {details.last.status}")
        for level, of in details.last.counts.items():
            out.write(f"    {level}: {', '.join(f'{n} {word}' for word, n in of.items())}")
    for name, value in details.options.items():
        out.write(f"  {name}: {_text(value)}")
    for pattern, options in details.tables.items():
        for name, value in options.items():
            out.write(f"  {pattern}: {name}: {_text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, list | tuple) else str(value)


@detector.command(epilog=examples("instep detector enable shop"))
def enable(connection: Connection = None) -> None:
    """Enable scheduled detection again after its problem is resolved."""
    from instep.operations.immediate.work import EnableDetectorRequest

    with open_backend() as backend:
        name = backend.connection(connection)
        done = backend.operations.perform(EnableDetectorRequest(name)).changed
    outcome = "detection is enabled again" if done else "detection had not disabled itself"
    emit({"connection": name, "enabled": done}, lambda out: out.write(f"{name}: {outcome}"))


@detector.command(
    "set",
    epilog=examples(
        "instep detector set frequency=1800 unsync_deleted_tables=true --connection shop",
        "instep detector set propagate_column_creations=true --table 'public.*'",
        "instep detector set frequency=",
    ),
)
def set_options(
    options: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE", help="Options with their values; NAME= resets one.")
    ],
    connection: OfConnection = None,
    table: TablePattern = "",
) -> None:
    """Change a connection's detection options on the server.

    See docs/guides/other-products.md for the options. For a connection of the project file the command prints the
    lines to add there.
    """
    from instep.operations.immediate.work import SetDetectorOptionsRequest

    values = dict(_option(text, of_table=bool(table)) for text in options)
    with open_backend() as backend:
        name = backend.connection(connection)
        backend.operations.perform(SetDetectorOptionsRequest(name, values, table))
        details, data = _read(backend, name)
    emit(data, lambda out: _show(out, details))


def _option(text: str, *, of_table: bool) -> tuple[str, Any]:
    """Return the long name, and the value as YAML reads it; one entry of a list needs no brackets."""
    import yaml

    from instep.control.detector import option

    name, equals, written = text.partition("=")
    if not equals:
        raise InstepError(f"{text!r} is not NAME=VALUE", hint="write for example frequency=1800")
    whole = option(name.strip(), of_table=of_table)
    try:
        value = yaml.safe_load(written)
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: a date such as 2026-13-45
        raise InstepError(f"{name}: {written!r} is not a valid value", hint="write true, 1800 or [a, b]") from None
    is_list = whole.endswith(("_names", "_regexes"))
    return whole, [value] if is_list and value is not None and not isinstance(value, list) else value
