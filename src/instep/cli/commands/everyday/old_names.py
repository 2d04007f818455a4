"""`instep table old-names`: what readers can still call a table and its columns, until when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import OfConnection, Table
from instep.cli.context import emit, one_connection, open_app
from instep.cli.help import examples
from instep.errors import InstepError

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.schema.planning.aliases import OldName

EXAMPLES = examples(
    "instep table old-names public.order total --keep 30d", "instep table old-names public.order --drop"
)


def old_names(
    path: Table,
    name: Annotated[str, typer.Argument(metavar="NAME", help="One old name; the default is all of the table.")] = "",
    connection: OfConnection = None,
    drop: Annotated[bool, typer.Option("--drop", help="End them now.")] = False,
    keep: Annotated[str | None, typer.Option("--keep", help="Keep them for this long from now: 12h, 30d, 8w.")] = None,
) -> None:
    """List a table's old names and their views; end or extend them."""
    from instep.control.reviews import until
    from instep.sync.aliases import of_table, settle_names

    if drop and keep is not None:
        raise InstepError("--drop and --keep cannot be combined", hint="give one of them")
    with open_app() as app:
        context = app.sync_context(one_connection(app, connection))
        found = of_table(context, path, name)
        if found and (drop or keep is not None):
            settle_names(context, found, None if drop else until(keep, None, app.store.old_names.now()))
            found = of_table(context, path)
    from instep.sync.status import old_names_data

    data = {"connection": context.name, "table": path, "old_names": old_names_data(found)}
    emit(data, lambda out: say_old_names(out, found) if found else out.write("no old names"))


def old_name_line(one: dict[str, Any]) -> str:
    """Return one of `old_names_data`, for people."""
    stands_for = f"{one['table']}.{one['column']}" if one["column"] else one["table"]
    where = f"not shown: {one['trouble']}" if one["trouble"] else f"in {one['view']}"
    return f"old name {one['name']} for {stands_for}, {where}, until {one['until']:%Y-%m-%d %H:%M} UTC"


def say_old_names(out: Screen, names: Iterable[OldName]) -> None:
    from instep.sync.status import old_names_data

    for one in old_names_data(names):
        out.write(f"  {old_name_line(one)}", "yellow" if one["trouble"] else "dim")
