"""Arguments and options that several commands share: one name and one text for the same thing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to this file, replacing it.")]
Lanes = Annotated[int, typer.Option("--lanes", min=1, max=64, help="Jobs that run at the same time.")]
Grace = Annotated[float, typer.Option("--grace", min=0, help="Seconds that running jobs get to end at a stop.")]
