"""`instep source log ...`: replication slots and log positions of connections in `mode: cdc`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import Connection, examples
from instep.cli.context import confirm, emit, one_connection, open_app
from instep.errors import Blocked, ProjectError

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.cli.screen import Screen
    from instep.model import Check

_MUCH = 1 << 30
"""Bytes of log that were read already from which people are told that they are decoded again."""
log = typer.Typer(
    help="Show and drop the logs that sources keep for `mode: cdc`.",
    epilog=examples("instep source log show"),
    no_args_is_help=True,
)


@log.command(epilog=examples("instep source log show shop"))
def show(
    connection: Annotated[str | None, typer.Argument(help="Only this connection; the default is all.")] = None,
) -> None:
    """Show how far each connection has read its source's log.

    Shows the lag, how much log the server retains, and whether it can still be read; and slots at PostgreSQL that no
    connection reads any more.
    """
    from instep.bootstrap.abandoned_slots import abandoned_slots
    from instep.bootstrap.app import log_status

    with open_app() as app:
        names = app.project.selected([connection] if connection else [])
        logs = [log_status(app, name) for name in names if app.project.follows_log(name)]
        slots = [s for s in abandoned_slots(app) if connection in (None, s["connection"])]
    emit({"logs": logs, "abandoned_slots": slots}, lambda out: _show(out, logs, slots))


@log.command(epilog=examples("instep source log drop shop --yes"))
def drop(
    connection: Connection = None,
    slot: Annotated[str, typer.Option("--slot", help="A slot that instep.yml no longer names.")] = "",
) -> None:
    """Drop a connection's slot and publication at a PostgreSQL source.

    Asks first. The next sync in `mode: cdc` then needs --full and reads whole tables.
    """
    from instep.bootstrap.app import log_of

    with open_app() as app:
        name = one_connection(app, connection)
        source_log, names = log_of(app, name, slot)
        if app.source(app.project.source_of(name)).kind != "postgres":
            raise ProjectError(f"{name} has no slot: a binary log has no slots", hint="nothing to drop")
        if other := app.log_taken(name, names):
            raise Blocked(
                f"the slot {names} belongs to connection {other}, not to {name}",
                hint=f"run `instep source log drop {other}`",
            )
        is_read = app.project.follows_log(name) and names == log_of(app, name)[1]
        then = "The next sync reads its tables as a whole." if is_read else f"No sync of {name} reads it."
        if not confirm(f"Drop the slot {names} of {name}? {then}"):
            raise Blocked("nothing was dropped", hint="confirm, or pass --yes")
        dropped = source_log.drop()
    data = {"connection": name, "slot": names, "dropped": dropped}
    emit(data, lambda out: out.write(f"{'dropped' if dropped else 'there was no'} slot {names}"))


def log_checks(app: App, source: str | None) -> list[Check]:
    """Return one check a connection that follows the log of this source (None: the only one)."""
    from instep.bootstrap.app import log_status
    from instep.model import Check

    chosen = [
        c for c in app.project.connections if source in (None, app.project.source_of(c)) and app.project.follows_log(c)
    ]
    logs = [log_status(app, c) for c in chosen]
    return [Check(f"log of {f['connection']}", not f["trouble"], line(f), f["hint"]) for f in logs]


def line(status: dict[str, Any]) -> str:
    """Return a log's state as people read it."""
    if status["trouble"]:
        return str(status["trouble"])
    if not status["ours"]:
        # of a log that the server keeps for whoever reads it
        retained = f"the server keeps {status['retained']:,} bytes from {status['restart']} on ({status['wal_status']})"
        if not status["confirmed"]:
            return f"binary log: not read yet; {retained}"
        behind = f"{status['behind']:,} bytes and {status['late']:,.0f} s behind"
        return f"binary log: was read up to {status['confirmed']}: {behind}; {retained}"
    if not status["exists"]:
        return f"slot {status['slot']} is made by the first sync"
    text = (
        f"slot {status['slot']} was read up to {status['confirmed']}: {status['behind']:,} bytes behind, "
        f"the server keeps {status['retained']:,} bytes from {status['restart']} on ({status['wal_status']})"
    )
    if (again := status["retained"] - status["behind"]) > _MUCH:
        text += f"; of these {again:,} were read, and are decoded again as long as an old transaction is open"
    if status["paused"]:
        text += (
            "; the connection is paused, and the server keeps its log until it goes on. To release it: `instep source "
            f"log drop {status['connection']}`; the next sync then needs --full and reads whole tables"
        )
    return text


def _show(out: Screen, logs: list[dict[str, Any]], slots: list[dict[str, Any]]) -> None:
    if not logs:
        out.write("no connection uses CDC: set `mode: cdc` in instep.yml")
    for one in logs:
        out.print(one["connection"], style="bold", end="")
        out.write(f"  {line(one)}", "yellow" if one["trouble"] else "")
        if one["trouble"] and one["hint"]:
            out.write(f"  {one['hint']}", "dim")
    for one in slots:
        out.write(
            f"slot {one['slot']} of {one['connection']} at {one['source']}: no connection reads it, and the server "
            f"keeps {one['retained']:,} bytes for it: to drop it run `{one['command']}`",
            "yellow",
        )
