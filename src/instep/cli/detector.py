"""`instep detector ...`: how scheduled detection stands, and switching it on again after it switched itself off."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.context import emit, one_connection, open_app

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.control.detector import Standing

detector = typer.Typer(help="Scheduled detection of schema changes.", no_args_is_help=True)
Connection = Annotated[str | None, typer.Argument(help="Its name in instep.yml; not needed when there is only one.")]


def register(app: typer.Typer) -> None:
    app.add_typer(detector, name="detector")


@detector.command(epilog="Example: instep detector status shop")
def status(connection: Connection = None) -> None:
    """Whether it runs, waits, is off, or has switched itself off and why."""
    from instep.control.detector import standing

    with open_app() as app:
        name = one_connection(app, connection)
        found = standing(app.store, app.project, name)
    data = asdict(found) | {"internal_disabled_detect_schema_changes": found.internal_disabled}
    emit({"detector": data}, lambda out: _show(out, found))


def _show(out: Screen, found: Standing) -> None:
    out.write(f"{found.connection}: {found.state}, every {found.frequency:,} s", "bold")
    if found.internal_disabled:
        out.write(f"  switched itself off: {found.reason}", "yellow")
        out.write(f"  resolve it, then `instep detector enable {found.connection}`", "dim")
    if found.next_due:
        out.write(f"  next at {found.next_due:%Y-%m-%d %H:%M:%S} UTC")
    if found.last and found.last.ended:
        out.write(f"  last at {found.last.ended:%Y-%m-%d %H:%M:%S} UTC: {found.last.status}")
        for level, of in found.last.result.get("counts", {}).items():
            out.write(f"    {level}: {', '.join(f'{n} {word}' for word, n in of.items())}")


@detector.command(epilog="Example: instep detector enable shop")
def enable(connection: Connection = None) -> None:
    """Switch it on again when what it was off for is resolved."""
    from instep.bootstrap import user
    from instep.control.detector import switch_on

    with open_app() as app:
        name = one_connection(app, connection)
        done = switch_on(app.store, name, user())
    said = "detection is on again" if done else "detection had not switched itself off"
    emit({"connection": name, "enabled": done}, lambda out: out.write(f"{name}: {said}"))
