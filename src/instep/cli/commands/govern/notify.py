"""`instep notify ...`: notification channels, pending deliveries, and the delivery log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import Limit, examples
from instep.cli.backend import open_backend
from instep.cli.context import emit, fail, open_app, say
from instep.operations.queries.govern import GetDelivery, ListDeliveries

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.store.history.outbox import Delivery

Channel = Annotated[str, typer.Argument(help="A channel of instep.yml.")]
notify = typer.Typer(
    help="List, test, send and retry notifications.",
    epilog=examples("instep notify list", "instep notify test ops"),
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(notify, name="notify")


@notify.command("list", epilog=examples("instep notify list"))
def list_channels() -> None:
    """List the channels, pending notifications, and which are closed."""
    with open_app() as app:
        waiting, closed = app.store.outbox.waiting(), app.store.outbox.closed()
        channels = [
            {
                "channel": name,
                "type": settings.type,
                "digest": settings.digest,
                "quiet": settings.quiet,
                "waiting": waiting.get(name, 0),
                "closed": closed.get(name, ""),
            }
            for name, settings in app.project.model.channels.items()
        ]
    emit({"channels": channels}, lambda out: _show_channels(out, channels))


@notify.command("test", epilog=examples("instep notify test ops"))
def test_channel(channel: Channel) -> None:
    """Send a test message to a channel."""
    from instep.operations.immediate.govern import TestChannelRequest

    with open_backend() as backend:
        code = backend.operations.perform(TestChannelRequest(channel)).code
    emit({"channel": channel, "code": code}, lambda out: out.print(f"sent to {channel}{f' ({code})' if code else ''}"))


@notify.command(epilog=examples("instep notify send"))
def send() -> None:
    """Send the notifications that are due.

    These are notifications that commands could not send, digests, and those delayed by quiet hours.
    """
    with open_app() as app:
        results = app.sender().send()
        waiting = sum(app.store.outbox.waiting().values())
    failed = [r for r in results if r.error]
    data = {
        "sent": len(results) - len(failed),
        "waiting": waiting,
        "failed": [{"delivery": r.delivery.number, "channel": r.delivery.channel, "error": r.error} for r in failed],
    }
    for result in failed:
        again = f"tried again at {result.again:%Y-%m-%d %H:%M} UTC" if result.again else "not tried again"
        say(f"delivery {result.delivery.number} to {result.delivery.channel}: {result.error}; {again}")
    emit(data, lambda out: out.print(f"{data['sent']} sent, {len(failed)} failed, {waiting} notifications pending"))
    if failed:
        raise fail(1)


@notify.command(epilog=examples("instep notify log", "instep notify log ops -n 50", "instep notify log --delivery 7"))
def log(
    channel: Annotated[str | None, typer.Argument(help="Only this channel.")] = None,
    limit: Limit = 20,
    delivery: Annotated[int, typer.Option("--delivery", help="Show the attempts of this delivery.")] = 0,
) -> None:
    """Show deliveries with their results, or the attempts of one."""
    with open_backend() as backend:
        if delivery:
            data = {"attempts": [asdict(a) for a in backend.query(GetDelivery(delivery)).attempts]}
            emit(data, lambda out: _show_attempts(out, data["attempts"]))
            return
        deliveries = backend.items(ListDeliveries(channel), limit)
    emit({"deliveries": [_data(d) for d in deliveries]}, lambda out: _show_log(out, deliveries))


@notify.command(epilog=examples("instep notify retry 7"))
def retry(delivery: Annotated[int, typer.Argument(help="A delivery's number from `notify log`.")]) -> None:
    """Retry a dead delivery now.

    Over a server its workers send it.
    """
    from instep.operations.immediate.govern import RetryDeliveryRequest

    with open_backend() as backend:
        before = backend.operations.perform(RetryDeliveryRequest(delivery)).delivery
        backend.send_due()
        details = backend.query(GetDelivery(delivery))
    is_sent = details.status == "sent"
    if details.attempt > before.attempt and not is_sent:
        say(f"delivery {delivery}: {details.error}")
        raise fail(1)
    emit({"delivery": delivery, "sent": is_sent}, lambda out: out.print("sent" if is_sent else "pending"))


@notify.command("open", epilog=examples("instep notify open ops"))
def open_channel(channel: Channel) -> None:
    """Reopen a channel that was closed because its receiver is gone (410).

    Notifications kept for the channel are sent.
    """
    from instep.operations.immediate.govern import OpenChannelRequest

    with open_backend() as backend:
        opened = backend.operations.perform(OpenChannelRequest(channel)).opened
    emit({"channel": channel, "opened": opened}, lambda out: out.print("opened" if opened else "already open"))


def _data(delivery: Delivery) -> dict[str, Any]:
    hidden = ("batch", "lease_until", "spent")
    return {k: v for k, v in asdict(delivery).items() if k not in hidden}


def _show_channels(out: Screen, channels: list[dict[str, Any]]) -> None:
    for one in channels:
        notes = (
            f"{one['waiting']} pending" if one["waiting"] else "",
            f"closed: {one['closed']}" if one["closed"] else "",
        )
        times = (f"{word} {one[word]}" if one[word] else "" for word in ("digest", "quiet"))
        parts = (one["channel"], one["type"], *times, *notes)
        out.write("  ".join(filter(None, parts)), "red" if one["closed"] else "")
    if not channels:
        out.print("no channels: add some below `channels:` in instep.yml")


def _show_log(out: Screen, deliveries: Sequence[Delivery]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    grid = Grid(box=None, header_style="bold")
    for name in ("", "channel", "made", "notices", "status", "attempts", "error"):
        grid.add_column(name, overflow="fold")
    for d in deliveries:
        style = {"sent": "green", "dead": "bold red"}.get(d.status, "yellow")
        row = (str(d.number), d.channel, f"{d.created:%Y-%m-%d %H:%M:%S}", str(d.notices))
        grid.add_row(*map(cell, row), cell(d.status, style), cell(str(d.attempt)), cell(d.error))
    out.print(grid if deliveries else "nothing has been sent yet")


def _show_attempts(out: Screen, attempts: list[dict[str, Any]]) -> None:
    for one in attempts:
        outcome = one["error"] or f"arrived ({one['code']})"
        out.write(f"{one['attempt']}. {one['at']:%Y-%m-%d %H:%M:%S} UTC, {one['seconds']:.1f} s: {outcome}")
    if not attempts:
        out.print("no attempt has been made yet")
