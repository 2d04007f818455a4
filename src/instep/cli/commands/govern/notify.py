"""`instep notify ...`: channels, what is on its way to them, and what has become of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.backend import open_backend
from instep.cli.context import emit, fail, open_app, say
from instep.operations.queries.govern import GetDelivery, ListDeliveries

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.store.history.outbox import Delivery

Channel = Annotated[str, typer.Argument(help="Its name in instep.yml.")]
notify = typer.Typer(help="Notices: channels, a test message, send what is due, the log.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(notify, name="notify")


@notify.command("list", epilog="Example: instep notify list")
def list_channels() -> None:
    """The channels, how much waits for each, and which are closed."""
    with open_app() as app:
        waiting, closed = app.store.outbox.waiting(), app.store.outbox.closed()
        found = [
            {
                "channel": name, "type": said.type, "digest": said.digest, "quiet": said.quiet,
                "waiting": waiting.get(name, 0), "closed": closed.get(name, ""),
            }
            for name, said in app.project.model.channels.items()
        ]  # fmt: skip
    emit({"channels": found}, lambda out: _show_channels(out, found))


@notify.command("test", epilog="Example: instep notify test ops")
def test_channel(channel: Channel) -> None:
    """Send a test message to a channel, at once."""
    with open_backend() as backend:
        code = backend.notices.test(channel)
    emit({"channel": channel, "code": code}, lambda out: out.print(f"sent to {channel}{f' ({code})' if code else ''}"))


@notify.command(epilog="Example: instep notify send")
def send() -> None:
    """Send the notices that are due: what commands could not send, digests, and what waited for quiet hours to end."""
    with open_app() as app:
        results = app.sender().send()
        waiting = sum(app.store.outbox.waiting().values())
    failed = [r for r in results if r.error]
    data = {
        "sent": len(results) - len(failed), "waiting": waiting,
        "failed": [{"delivery": r.delivery.number, "channel": r.delivery.channel, "error": r.error} for r in failed],
    }  # fmt: skip
    for result in failed:
        again = f"tried again at {result.again:%Y-%m-%d %H:%M} UTC" if result.again else "not tried again"
        say(f"delivery {result.delivery.number} to {result.delivery.channel}: {result.error}; {again}")
    emit(data, lambda out: out.print(f"{data['sent']} sent, {len(failed)} failed, {waiting} notices wait"))
    if failed:
        raise fail(1)


@notify.command(epilog="Examples: instep notify log · instep notify log ops -n 50 · instep notify log --delivery 7")
def log(
    channel: Annotated[str | None, typer.Argument(help="Only this channel's.")] = None,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many, newest first.")] = 20,
    delivery: Annotated[int, typer.Option("--delivery", help="The attempts of one delivery.")] = 0,
) -> None:
    """Deliveries with what has become of them, or the attempts of one."""
    with open_backend() as backend:
        if delivery:
            data = {"attempts": [asdict(a) for a in backend.query(GetDelivery(delivery)).attempts]}
            emit(data, lambda out: _show_attempts(out, data["attempts"]))
            return
        found = backend.items(ListDeliveries(channel), number)
    emit({"deliveries": [_data(d) for d in found]}, lambda out: _show_log(out, found))


@notify.command(epilog="Example: instep notify retry 7")
def retry(delivery: Annotated[int, typer.Argument(help="Its number, of `instep notify log`.")]) -> None:
    """Try a dead delivery again, at once."""
    with open_app() as app:
        app.store.outbox.retry(delivery)
        results = [r for r in app.sender().send() if r.delivery.number == delivery]
    if results and results[0].error:
        say(f"delivery {delivery}: {results[0].error}")
        raise fail(1)
    emit({"delivery": delivery, "sent": bool(results)}, lambda out: out.print("sent" if results else "it waits"))


@notify.command("open", epilog="Example: instep notify open ops")
def open_channel(channel: Channel) -> None:
    """Open a channel that was closed because its receiver is gone for good (410); what was kept for it is sent."""
    with open_app() as app:
        app.project.channel(channel)
        opened = app.store.outbox.open(channel)
        app.store.outbox.written = opened
    emit({"channel": channel, "opened": opened}, lambda out: out.print("opened" if opened else "it was open"))


def _data(delivery: Delivery) -> dict[str, Any]:
    hidden = ("batch", "lease_until", "spent")
    return {k: v for k, v in asdict(delivery).items() if k not in hidden}


def _show_channels(out: Screen, found: list[dict[str, Any]]) -> None:
    for one in found:
        notes = (
            f"{one['waiting']} wait" if one["waiting"] else "",
            f"closed: {one['closed']}" if one["closed"] else "",
        )
        times = (f"{word} {one[word]}" if one[word] else "" for word in ("digest", "quiet"))
        parts = (one["channel"], one["type"], *times, *notes)
        out.write("  ".join(filter(None, parts)), "red" if one["closed"] else "")
    if not found:
        out.print("no channels: write them under channels: in instep.yml")


def _show_log(out: Screen, found: Sequence[Delivery]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    grid = Grid(box=None, header_style="bold")
    for name in ("", "channel", "made", "notices", "status", "attempts", "error"):
        grid.add_column(name, overflow="fold")
    for d in found:
        style = {"sent": "green", "dead": "bold red"}.get(d.status, "yellow")
        row = (str(d.number), d.channel, f"{d.created:%Y-%m-%d %H:%M:%S}", str(d.notices))
        grid.add_row(*map(cell, row), cell(d.status, style), cell(str(d.attempt)), cell(d.error))
    out.print(grid if found else "nothing was sent yet")


def _show_attempts(out: Screen, found: list[dict[str, Any]]) -> None:
    for one in found:
        said = one["error"] or f"arrived ({one['code']})"
        out.write(f"{one['attempt']}. {one['at']:%Y-%m-%d %H:%M:%S} UTC, {one['seconds']:.1f} s: {said}")
    if not found:
        out.print("no attempt was made yet")
