"""Arguments and options that several commands share, and the form of `--help`."""

from __future__ import annotations

from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer import Typer
from typer.core import TyperGroup
from typer.main import get_command_name
from typer.models import CommandInfo, TyperInfo

_CONNECTION = "The connection; optional if there is only one."
_TABLE = "SCHEMA.TABLE"
_OBJECT = "SCHEMA[.TABLE[.COLUMN]]"

Connection = Annotated[str | None, typer.Argument(metavar="CONNECTION", help=_CONNECTION)]
OfConnection = Annotated[str | None, typer.Option("--connection", "-c", metavar="NAME", help=_CONNECTION)]
OnlyConnection = Annotated[
    str | None, typer.Option("--connection", "-c", metavar="NAME", help="Only this connection; the default is all.")
]

Table = Annotated[str, typer.Argument(metavar=_TABLE, help="The table, named as at the source.")]
OnlyTable = Annotated[
    str | None, typer.Argument(metavar=_TABLE, help="Only this table; the default is all of the connection.")
]
OneTable = Annotated[str | None, typer.Option("--table", "-t", metavar=_TABLE, help="Only this table.")]
Tables = Annotated[list[str] | None, typer.Option("--table", "-t", metavar=_TABLE, help="Only this table; repeatable.")]
TablePattern = Annotated[
    str, typer.Option("--table", "-t", metavar="PATTERN", help="Only tables that match, such as 'public.*'.")
]
Objects = Annotated[list[str] | None, typer.Argument(metavar=f"{_OBJECT}", help="Schemas, tables or columns.")]
ObjectMatch = Annotated[
    list[str] | None,
    typer.Option("--match", metavar="PATTERN", help="Tables and columns that match a glob or re:REGEX; repeatable."),
]

ChangeIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Ids from `changes list`; the first characters are enough."),
]
ChangeMatch = Annotated[
    list[str] | None,
    typer.Option("--match", metavar="PATTERN", help="Open changes whose table.column or kind matches; repeatable."),
]
ChangeKind = Annotated[
    list[str] | None,
    typer.Option("--kind", help="Open changes of this kind or family, such as column.added; repeatable."),
]
ChangeTable = Annotated[
    list[str] | None, typer.Option("--table", "-t", metavar=_TABLE, help="Open changes of this table; repeatable.")
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen without changing anything.")]
ExitCode = Annotated[bool, typer.Option("--exit-code", help="Exit with 2 if there are changes.")]
AllowDestructive = Annotated[
    list[str] | None,
    typer.Option("--allow-destructive", metavar="PATTERN", help="Objects that may lose data; repeatable."),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many.")]
Lanes = Annotated[int, typer.Option("--lanes", min=1, max=64, help="Jobs that run at the same time.")]
Grace = Annotated[float, typer.Option("--grace", min=0, help="Seconds that running jobs get to end at a stop.")]


GROUPS = {
    "Set up": "init validate doctor source destination connector connection demo version",
    "Everyday": "detect plan apply sync status tables history schema query verify pause resume",
    "Decide": "changes preview impact policy selection contract migration",
    "Repair": "quarantine repair backfill undo restore table maintain",
    "Govern": "rollout detector notify audit",
    "Serve": "engine ui server worker queue keys secrets db export import remove",
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
    """Return the words by which a registered command or family of commands is called."""
    return command.name or get_command_name(command.callback.__name__ if command.callback else "")


def arrange(app: Typer) -> None:
    """Group the commands of the program under their headings, and leave line breaks in help to the terminal."""
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
