"""`instep table ...`: how one table is synced, its key, its cursor, and its retained copies.

`instep table shards`: which shard of a shared table has which column, and which one is behind.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import AllowDestructive, DryRun, OfConnection, Table, examples
from instep.cli.backend import open_backend
from instep.cli.commands.everyday.status import EXAMPLES, old_names, say_old_names
from instep.cli.commands.repair.maintain import layout_line
from instep.cli.context import confirm, confirm_change, console, emit, one_connection, open_app
from instep.errors import Blocked, InstepError
from instep.operations.repair.set_cursor import SetCursorRequest
from instep.operations.repair.set_key import SetKeyRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from instep.cli.screen import Screen
    from instep.control.shards import SharedTable
    from instep.destinations.base import Layout
    from instep.operations.spec import Preview
    from instep.schema.planning.shards import ShardedColumn
    from instep.sync.operations.set_key import Way
    from instep.sync.status import TableStatus


table = typer.Typer(
    help="Set a table's key or cursor; manage its copies and old names.",
    epilog=examples("instep table show public.order"),
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    table.command("old-names", epilog=EXAMPLES)(old_names)
    table.command("shards", epilog=SHARD_EXAMPLES)(shards)
    app.add_typer(table, name="table")


@table.command(epilog=examples("instep table show public.order"))
def show(path: Table, connection: OfConnection = None) -> None:
    """Show a table's mode, key, cursor, pauses and files.

    Also shows who set the key and the cursor. Does not open the source.
    """
    from instep.sync.operations.maintain import layout_of
    from instep.sync.status import table_status

    with open_app() as app:
        context = app.sync_context(one_connection(app, connection))
        status = table_status(context, path)
        layout = layout_of(context, status.place)
    data = _shown(context.name, status) | {"layout": asdict(layout) if layout else None}
    emit(data, lambda out: _show(out, status, layout))


@table.command(
    "set-key",
    epilog=examples(
        "instep table set-key public.order id,version --dry-run", "instep table set-key public.order id --rebuild"
    ),
)
def set_key(
    path: Table,
    columns: Annotated[str, typer.Argument(metavar="COL[,COL...]", help="The new key's columns.")],
    connection: OfConnection = None,
    rekey: Annotated[bool, typer.Option("--rekey", help="Keep the rows; refused with duplicates or NULLs.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Reload the table; the old rows are kept as a copy.")
    ] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Empty the table now and reload it, without a copy.")] = False,
    allow: AllowDestructive = None,
    dry_run: DryRun = False,
) -> None:
    """Change a table's key.

    Counts first, at source and destination, rows that share the new key or have NULL in it. --rebuild reloads the table
    at the next sync; the old rows are kept as a copy. Without --rekey, --rebuild or --clear the command only counts,
    and names the option to use.
    """
    way, key = _chosen_way(rekey=rekey, rebuild=rebuild, clear=clear), [c.strip() for c in columns.split(",")]
    with open_backend() as backend:
        request = SetKeyRequest(table=path, key=tuple(key), way=way or "rekey")
        made = backend.operations.prepare(backend.connection(connection), request)
        data = {"connection": made.connection, **made.document, "way": way, "applied": False}
        if way is None or dry_run:
            emit(data, lambda out: _write_key_change(out, made, requested=way))
            return
        confirm_change(made.lines, f"Set the key of {path}?")
        done = backend.operations.execute(made, allow or ())
    version, copy = done["version"], done["copy"] and ".".join(done["copy"])
    data |= {"applied": True, "version": version, "copy": copy}
    copy_note = f"; the old table is kept as {copy}" if copy else ""
    emit(data, lambda out: out.write(f"the key of {path} is ({', '.join(key)}): schema version {version}{copy_note}"))


@table.command(
    "set-cursor",
    epilog=examples(
        "instep table set-cursor public.order updated_at --from 2026-03-01",
        "instep table set-cursor public.order --none",
    ),
)
def set_cursor(
    path: Table,
    column: Annotated[str | None, typer.Argument(help="A column that grows with every change.")] = None,
    connection: OfConnection = None,
    none: Annotated[bool, typer.Option("--none", help="Use no cursor: each sync reads the whole table.")] = False,
    start: Annotated[str, typer.Option("--from", help="Start the first read at this value.")] = "",
    dry_run: DryRun = False,
) -> None:
    """Change or remove a table's cursor.

    Checks the column's type and NULLs. The next sync starts over with the new cursor.
    """
    if (column is None) == (not none):
        raise InstepError("no cursor is named", hint="name a column, or pass --none")
    if none and start:
        raise InstepError("--from needs a cursor", hint="name a column, or leave --from out")
    with open_backend() as backend:
        request = SetCursorRequest(table=path, column=column, start=start)
        made = backend.operations.prepare(backend.connection(connection), request)
        data: dict[str, Any] = {"connection": made.connection, **made.document, "applied": False}
        if dry_run:
            emit(data, lambda out: _lines(out, made.lines))
            return
        confirm_change(made.lines, f"Set the cursor of {path}?")
        version = backend.operations.execute(made)["version"]
    data |= {"applied": True, "version": version}
    emit(data, lambda out: out.write(f"the cursor of {path} is {column or 'none'}: schema version {version}"))


@table.command(epilog=examples("instep table purge public.order --yes"))
def purge(path: Table, connection: OfConnection = None, dry_run: DryRun = False) -> None:
    """Delete the copies that were kept of a table when it was reloaded.

    Asks first; this cannot be undone.
    """
    from instep.sync.operations.delete import purge as purge_copies
    from instep.sync.status import table_status

    with open_app() as app:
        context = app.sync_context(one_connection(app, connection))
        copies = table_status(context, path).copies
        names = [f"{'.'.join(c.place)} ({c.rows:,} rows, {c.why})" for c in copies]
        if copies and not dry_run:
            for name in names:
                console(stderr=True).write(f"  {name}")
            if not confirm("Permanently delete these copies?"):
                raise Blocked("nothing was deleted", hint="confirm, or pass --yes")
            purge_copies(context, copies)
    done = bool(copies) and not dry_run
    data = {"connection": context.name, "table": path, "copies": [asdict(c) for c in copies], "purged": done}
    emit(data, lambda out: _lines(out, [f"{'deleted' if done else 'kept'}: {n}" for n in names] or ["no copies"]))


def _chosen_way(**given: bool) -> Way | None:
    from instep.sync.operations.set_key import WAYS

    chosen = [way for way in WAYS if given[way]]
    if len(chosen) > 1:
        raise InstepError(f"{' and '.join(f'--{w}' for w in chosen)} cannot be combined", hint="give one of them")
    return chosen[0] if chosen else None


def _lines(out: Screen, lines: Sequence[str]) -> None:
    for line in lines:
        out.write(line)


def _write_key_change(out: Screen, made: Preview, *, requested: Way | None) -> None:
    if requested is not None:
        refused = made.detail["why_not"]
        _lines(out, (*made.lines, *([f"refused: {refused}"] if refused else [])))
        return
    _lines(out, [f"key ({', '.join(made.document['key'])}) {line}" for line in made.detail["counted"]])
    for line in made.detail["offers"]:
        out.write(f"  {line}")


def _shown(connection: str, s: TableStatus) -> dict[str, Any]:
    from instep.sync.status import old_names_data

    choice = s.choice
    return {
        "connection": connection,
        "table": s.table.path,
        "destination": ".".join(s.place),
        "mode": choice.mode if choice else None,
        "why": choice.why if choice else s.trouble,
        "deletes": choice.deletes if choice else None,
        "key": s.table.key,
        "key_from": s.key_from,
        "cursor": s.table.cursor,
        "cursor_from": s.cursor_from,
        "pauses": [asdict(p) for p in s.pauses],
        "copies": [asdict(c) for c in s.copies],
        "waiting": [{"id": r.id, "kind": r.kind, "summary": r.summary} for r in s.waiting],
        "old_names": old_names_data(s.old_names),
    }


def _show(out: Screen, s: TableStatus, layout: Layout | None) -> None:
    out.write(s.table.path, "bold")
    mode = f"{s.choice.mode}, deletes {s.choice.deletes} ({s.choice.why})" if s.choice else s.trouble
    key = f"({', '.join(s.table.key)})" if s.table.key else "none"
    for name, value in (
        ("destination", ".".join(s.place)),
        ("mode", mode),
        ("key", f"{key}: {s.key_from}"),
        ("cursor", f"{s.table.cursor or 'none'}: {s.cursor_from}"),
    ):
        out.write(f"  {name:<12} {value}")
    if layout is not None:
        out.write(f"  files        {layout_line(layout)}")
    for pause in s.pauses:
        out.write(f"  paused       {'' if pause.table else 'the whole connection: '}{pause.reason}", "yellow")
    for r in s.waiting:
        out.write(f"  waiting      {r.id} {r.summary}: instep changes show {r.id}", "yellow")
    for c in s.copies:
        out.write(f"  copy         {'.'.join(c.place)}: {c.rows:,} rows, {c.why}")
    say_old_names(out, s.old_names)


SHARD_EXAMPLES = examples("instep table shards", "instep table shards shop.orders --all")
SHOWN = 12
"""Shards up to which each gets a column; more are counted, and those that lack something named."""


def shards(
    path: Annotated[
        str, typer.Argument(metavar="NAMESPACE.TABLE", help="A shared table, as NAMESPACE.TABLE at the destination.")
    ] = "",
    all_columns: Annotated[bool, typer.Option("--all", help="Also list columns that all shards have alike.")] = False,
) -> None:
    """List shared tables: each shard's columns and types, and shards behind.

    Opens neither source nor destination.
    """
    from instep.control.shards import as_data, shared_tables
    from instep.suggest import first_of

    with open_app() as app:
        known = shared_tables(app.project, app.store)
    tables = [t for t in known if not path or t.name == path]
    if path and not tables:
        names = first_of([t.name for t in known]) or "none: no connection has a `shard`, or none was synced yet"
        raise InstepError(f"no shared table {path}", hint=f"shared tables: {names}")
    emit(
        {"tables": [as_data(t) for t in tables]},
        lambda out: _show_shared_tables(out, tables, all_columns or bool(path)),
    )


def _show_shared_tables(out: Screen, shared_tables: list[SharedTable], every: bool) -> None:
    if not shared_tables:
        out.write("no shared tables: set `shard` on connections, see docs/guides/shards.md")
    for table in shared_tables:
        same = "" if table.differing else ": all columns alike"
        out.write(f"{table.name} ({table.destination}), {len(table.shards)} shards{same}", style="bold")
        if table.missing:
            out.write(f"  without the table: {', '.join(table.missing)}", style="yellow")
        for shard in table.shards:
            behind = [f"last run {shard.status or 'never'}"] if shard.status != "done" else []
            behind += [f"{shard.waiting} changes wait"] if shard.waiting else []
            if behind:
                text = f"  {shard.name} ({shard.connection}): schema version {shard.version}, {', '.join(behind)}"
                out.write(text, style="yellow")
        columns = table.columns if every else table.differing
        if columns:
            (_grid if len(table.shards) <= SHOWN else _list)(out, columns)


def _grid(out: Screen, columns: tuple[ShardedColumn, ...]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    grid = Grid(box=None, pad_edge=True)
    for name in ("column", "shared type", *columns[0].shards):
        grid.add_column(cell(name))
    for column in columns:
        kinds = ((s, k) for s, k in column.shards.items())
        own = (cell(f"{k}{'~' * (s in column.retained)}") if k else cell("-", "yellow") for s, k in kinds)
        grid.add_row(cell(column.name), cell(str(column.type)), *own)
    out.print(grid)


def _list(out: Screen, columns: tuple[ShardedColumn, ...]) -> None:
    for column in columns:
        kinds = sorted({str(kind) for kind in column.shards.values() if kind})
        lacks = f"; missing in {', '.join(column.lacking)}" if column.lacking else ""
        out.write(f"  {column.name}: {column.type} of {', '.join(kinds)}{lacks}")
