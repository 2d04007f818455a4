"""`instep quarantine ...`: values and rows that did not fit: list, replay, discard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import DryRun, OfConnection, OnlyTable, examples
from instep.cli.backend import open_backend
from instep.cli.context import PARTIAL, confirm, emit, fail
from instep.errors import Blocked, InstepError
from instep.operations.queries.quarantine import CountQuarantined, ListQuarantined
from instep.operations.repair.discard_quarantine import DiscardQuarantineRequest
from instep.operations.repair.replay_quarantine import ReplayQuarantineRequest

if TYPE_CHECKING:
    from instep.backends.protocol import Backend
    from instep.cli.screen import Screen
    from instep.operations.queries.quarantine import QuarantineItem

SIMILAR = 100
"""The most entries that are looked at where an id has to name one."""
Column = Annotated[str, typer.Option("--column", help="Only values of this column.")]
quarantine = typer.Typer(
    help="List, replay and discard values and rows that do not fit.",
    epilog=examples("instep quarantine list", "instep quarantine replay --dry-run"),
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(quarantine, name="quarantine")


@quarantine.command("list", epilog=examples("instep quarantine list", "instep quarantine list public.order --limit 20"))
def list_quarantined(
    table: OnlyTable = None,
    connection: OfConnection = None,
    column: Column = "",
    run: Annotated[
        str, typer.Option("--run", help="Only what this run quarantined last; the first characters are enough.")
    ] = "",
    every: Annotated[bool, typer.Option("--all", help="Also replayed, superseded and discarded entries.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Entries to list below the counts.")] = 0,
) -> None:
    """Count quarantined values and rows by table, column and reason.

    With --limit also lists entries, newest first.
    """
    with open_backend() as backend:
        name, of = backend.connection(connection), {"column": column or None, "run": run or None}
        counted = backend.query(CountQuarantined(name, table, all=every, **of))
        entries = backend.items(ListQuarantined(name, table, all=every, **of), limit) if limit else []
    counts = asdict(counted)
    data = {
        "total": counted.total,
        "groups": counts["groups"],
        "entries": [asdict(entry) for entry in entries],
        "unreadable": counts["unreadable"],
    }
    emit(data, lambda out: _show_list(out, data))


@quarantine.command(epilog=examples("instep quarantine show q-3f9a"))
def show(
    id: Annotated[str, typer.Argument(help="An entry's id; the first characters are enough.")],
    connection: OfConnection = None,
) -> None:
    """Show one quarantined value or row with its original."""
    with open_backend() as backend:
        data = asdict(_one(backend, backend.connection(connection), id))
    emit(data, lambda out: _show_one(out, data))


@quarantine.command(
    epilog=examples("instep quarantine replay --dry-run", "instep quarantine replay public.order --yes")
)
def replay(
    table: OnlyTable = None,
    connection: OfConnection = None,
    column: Column = "",
    dry_run: DryRun = False,
) -> None:
    """Write quarantined values that fit now back into their rows.

    A newer value in the row is kept. What still does not fit stays quarantined.
    """
    with open_backend() as backend:
        request = ReplayQuarantineRequest(tables=(table,) if table else (), column=column, preview=dry_run)
        done = list(backend.operations.run(backend.connection(connection), request).tables)
    data = {"dry_run": dry_run, "tables": done}
    emit(data, lambda out: _show_replay(out, done, dry_run=dry_run))
    failed = sum(bool(d["error"]) for d in done)
    if failed:
        raise fail(1 if failed == len(done) else PARTIAL)


@quarantine.command(
    epilog=examples(
        "instep quarantine discard q-3f9a",
        "instep quarantine discard public.order",
        """instep quarantine discard public.order --key '{"id": 7}'""",
    )
)
def discard(
    what: Annotated[
        list[str],
        typer.Argument(
            help="Entry ids, or tables (SCHEMA.TABLE) whose entries are all deleted.", metavar="SCHEMA.TABLE|ID"
        ),
    ],
    connection: OfConnection = None,
    key: Annotated[
        str, typer.Option("--key", help="With one table: erase all traces of the row with this key (JSON).")
    ] = "",
) -> None:
    """Delete quarantined originals for good.

    Their rows stay as they are; if the same value is quarantined again it is not shown again.
    """
    with open_backend() as backend:
        if key:
            _erase(backend, connection, what, key)
        else:
            _discard(backend, backend.connection(connection), what)


def _discard(backend: Backend, connection: str, what: Sequence[str]) -> None:
    from instep.backends.calls import discard_entries

    tables = {w: backend.query(CountQuarantined(connection, w)) for w in what if not _is_id(w)}
    named = [_one(backend, connection, w) for w in what if _is_id(w)]
    ids = sorted({one.id for one in named if one.table not in tables or one.status != "held"})
    total = len(ids) + sum(counts.total for counts in tables.values())
    if total and not confirm(f"Permanently delete the originals of {total:,} quarantined values or rows?"):
        raise Blocked("nothing was discarded", hint="confirm, or pass --yes")
    gone = discard_entries(backend, connection, ids)
    count = len(gone)
    for table, counts in tables.items():
        if counts.total:
            request = DiscardQuarantineRequest(tables=(table,), until=counts.newest)
            report = backend.operations.run(connection, request)
            count, gone = count + report.discarded, [*gone, *report.ids]
    emit({"discarded": count, "ids": gone}, lambda out: out.print(f"discarded {count:,}"))


def _erase(backend: Backend, connection: str | None, what: Sequence[str], key: str) -> None:
    from instep.backends.calls import erase_row

    if len(what) != 1 or _is_id(what[0]):
        raise InstepError("--key needs exactly one table", hint="name the table of the row (SCHEMA.TABLE)")
    name = backend.connection(connection)
    if not confirm(f"Erase every trace of this row from the quarantine of {what[0]}?"):
        raise Blocked("nothing was erased", hint="confirm, or pass --yes")
    count = erase_row(backend, name, what[0], _key(key))
    emit({"table": what[0], "erased": count}, lambda out: out.print(f"erased {count:,}"))


def _key(text: str) -> dict[str, str | None]:
    try:
        key = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise InstepError(f"--key is not JSON: {error}", hint="""for example --key '{"id": 7}'""") from error
    if not isinstance(key, dict) or not key or any(isinstance(v, dict | list) for v in key.values()):
        raise InstepError("--key is not an object of columns and values", hint="""for example --key '{"id": 7}'""")
    return {name: str(v).lower() if isinstance(v, bool) else v for name, v in key.items()}


def _is_id(text: str) -> bool:
    return text.startswith("q-")


def _one(backend: Backend, connection: str, id: str) -> QuarantineItem:
    """Return the entry of this id, or whose id alone begins so."""
    quarantine_items: list[QuarantineItem] = backend.items(ListQuarantined(connection, all=True, id=id), SIMILAR)
    if len(quarantine_items) != 1:
        many = f"{len(quarantine_items)} entries" if len(quarantine_items) < SIMILAR else f"{SIMILAR} entries or more"
        what = many if quarantine_items else "no entry"
        raise InstepError(f"{what} in quarantine: {id}", hint="see `instep quarantine list --limit 100`")
    return quarantine_items[0]


def _show_list(out: Screen, data: dict[str, Any]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    for name in data["unreadable"]:
        out.write(f"cannot be read: {name}", "yellow")
    if not data["groups"]:
        out.print("the quarantine is empty")
        return
    head = ("count", "table", "column", "reason", "change", "status")
    grid = Grid(*head, box=None, header_style="bold", padding=(0, 2, 0, 0))
    for group in data["groups"]:
        row = {**group, "status": _shown_status(group["status"])}
        grid.add_row(*(cell(row[name] or ("(row)" if name == "column" else "·")) for name in head))
    out.print(grid)
    for entry in data["entries"]:
        original = entry["original"] if isinstance(entry["original"], str) else json.dumps(entry["original"])
        what = f"{entry['table']}.{entry['column']}" if entry["column"] else entry["table"]
        out.write(f"{entry['id']}  {what} {json.dumps(entry['key'], ensure_ascii=False)}: {original}")


def _shown_status(status: str) -> str:
    """Return the status as people read it; `held` is how documents spell that an entry waits."""
    return "waiting" if status == "held" else status


def _show_one(out: Screen, data: dict[str, Any]) -> None:
    out.write(f"{data['id']}  {data['table']}{'.' if data['column'] else ''}{data['column']}", "bold")
    for name in ("key", "original", "reason", "place", "change", "rule", "run", "since", "at", "status"):
        value = _shown_status(data[name]) if name == "status" else data[name]
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
        out.write(f"  {name:<9} {'·' if text in ('', None) else text}")


def _show_replay(out: Screen, done: Sequence[dict[str, Any]], *, dry_run: bool) -> None:
    if not done:
        out.print("the quarantine is empty")
    for d in done:
        if d["error"]:
            why = "; ".join(line.strip() for line in d["error"].splitlines())
            out.write(f"{d['table']}: failed: {why}", "red")
            continue
        verb = "would be replayed" if dry_run else "replayed"
        out.write(
            f"{d['table']}: {d['replayed']:,} {verb}, {d['superseded']:,} superseded by newer values, "
            f"{d['held']:,} still quarantined"
        )
        if d["replaced"]:
            out.write(f"  {d['replaced']:,} of the superseded are of the table before it was replaced", "dim")
        for left in d["reasons"]:
            out.write(f"  {left['column'] or '(row)'}: {left['reason']}: {left['count']:,}", "dim")
