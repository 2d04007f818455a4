"""The form of `--help`: commands in groups, in the order in which a user needs them, and an example for each."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any

from typer import Typer
from typer.core import TyperGroup
from typer.main import get_command_name
from typer.models import CommandInfo, TyperInfo

GROUPS = {
    "Set up": "init validate doctor source destination connector connection demo version",
    "Everyday": "detect plan apply sync status tables history schema query verify pause resume",
    "Decide": "changes impact policy selection contract migration",
    "Repair": "quarantine repair backfill undo restore table maintain",
    "Govern": "rollout detector notify audit",
    "Serve": "engine server worker queue keys secrets db export import",
}
"""The commands under each heading of `instep --help`, in order. One that is not here comes last under the heading of
its folder in `cli/commands/`."""

_HEADINGS = {name: heading for heading, names in GROUPS.items() for name in names.split()}


class OrderedCommands(TyperGroup):
    """The program: its help lists the commands as `GROUPS` does."""

    def list_commands(self, ctx: Any) -> list[str]:
        order = {name: place for place, name in enumerate(_HEADINGS)}
        return sorted(super().list_commands(ctx), key=lambda name: order.get(name, len(order)))


def name_of(command: CommandInfo | TyperInfo) -> str:
    """Return what is typed for a registered command or family of commands."""
    return command.name or get_command_name(command.callback.__name__ if command.callback else "")


def arrange(app: Typer) -> None:
    """Put each command of the program under its heading, and leave it to the terminal where lines of help end."""
    registered: list[CommandInfo | TyperInfo] = [*app.registered_commands, *app.registered_groups]
    for one in registered:
        one.rich_help_panel = _HEADINGS.get(name_of(one)) or _heading_of_folder(one)
    _unwrap(app)


def _heading_of_folder(command: CommandInfo | TyperInfo) -> str:
    module = command.callback.__module__ if command.callback else ""
    return module.rpartition(".")[0].rpartition(".")[2].replace("_", " ").capitalize()


def _unwrap(app: Typer) -> None:
    for command in app.registered_commands:
        paragraphs = cleandoc(command.callback.__doc__ or "").split("\n\n") if command.callback else []
        command.help = "\n\n".join(p.replace("\n", " ") for p in paragraphs)
    for family in app.registered_groups:
        if family.typer_instance:
            _unwrap(family.typer_instance)


def examples(*lines: str) -> str:
    """Return command lines as the last part of a command's help, one a line."""
    return "\n".join((f"Example{'s' * (len(lines) > 1)}:", *lines))
