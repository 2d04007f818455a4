"""`instep changes approve`, `reject`, `ignore`, `snooze`: a person's answers, with what they lead to."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.context import confirm, console, emit, open_app, options
from instep.cli.review_text import show_changes
from instep.errors import Blocked

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.cli.screen import Screen
    from instep.control.reviews import Answer
    from instep.control.selections import Place, Step
    from instep.model import Review
    from instep.sync.changes.answer import Outlook

Ids = Annotated[list[str] | None, typer.Argument(help="Ids from `changes list`; the first characters are enough.")]
Of = Annotated[str | None, typer.Option("--connection", "-c", help="With a filter: only changes of this connection.")]
Match = Annotated[list[str] | None, typer.Option("--match", help="Open changes whose table.column or kind fits.")]
Kind = Annotated[list[str] | None, typer.Option("--kind", help="Open changes of this kind or family (column.added).")]
OfTable = Annotated[list[str] | None, typer.Option("--table", "-t", help="Open changes of this table (schema.table).")]


def register(changes: typer.Typer) -> None:
    changes.command(
        epilog="Examples: instep changes approve c-7f3a2b · instep changes approve --match 'public.order.*'"
    )(approve)
    changes.command(
        "map", epilog="Examples: instep changes map c-7f3a2b · instep changes map public.order.note public.order.remark"
    )(map_columns)
    changes.command(epilog="Example: instep changes reject c-7f3a2b")(reject)
    changes.command(epilog="Examples: instep changes ignore c-7f3a2b · instep changes ignore --kind column.added")(
        ignore
    )
    changes.command(
        epilog="Examples: instep changes snooze c-7f3a2b --for 3d · instep changes snooze --kind key --until 2026-12-01"
    )(snooze)


def approve(
    ids: Ids = None,
    match: Match = None,
    kind: Kind = None,
    table: OfTable = None,
    connection: Of = None,
    hashed: Annotated[bool, typer.Option("--hash", help="Let their columns in as salted SHA-256.")] = False,
) -> None:
    """Let changes in: the next plan, apply or sync carries them out. Shows first what that does.

    An approval is about the table as it was when the change was shown: it is refused (exit 5) if the table has moved
    at the source or in the accepted schema since."""
    with open_app() as app:
        found, renames = _parted(_chosen(app, ids, match, kind, table, connection), named=bool(ids))
        if renames:
            mapped = [_map_proposal(app, r) for r in renames]
            emit({"mapped": mapped}, lambda out: out.write("\n".join(map(_mapped, mapped))))
            return
        outlooks = {name: _approving(app, name, group) for name, group in _by_connection(found)}
        hashes = _hashes(app, found) if hashed else []
        done = _answered(app, found, "approved", outlooks, "Approve")
        _hash(hashes)
    _finish(done, outlooks, "")


def reject(
    ids: Ids = None, match: Match = None, kind: Kind = None, table: OfTable = None, connection: Of = None
) -> None:
    """Keep changes out: they are not asked about again while they stay the same."""
    with open_app() as app:
        found = _chosen(app, ids, match, kind, table, connection)
        outlooks = {name: _keeping(app, name, group, rejected=True) for name, group in _by_connection(found)}
        done = _answered(app, found, "rejected", outlooks, "Reject")
    _finish(done, outlooks, "")


def ignore(
    ids: Ids = None, match: Match = None, kind: Kind = None, table: OfTable = None, connection: Of = None
) -> None:
    """Keep changes out and say no more about them until the change itself differs."""
    with open_app() as app:
        found = _chosen(app, ids, match, kind, table, connection)
        outlooks = {name: _keeping(app, name, group, rejected=True) for name, group in _by_connection(found)}
        done = _answered(app, found, "ignored", outlooks, "Ignore")
    _finish(done, outlooks, "not asked again until the change itself differs; `changes approve ID` takes it back")


def snooze(
    ids: Ids = None,
    match: Match = None,
    kind: Kind = None,
    table: OfTable = None,
    connection: Of = None,
    length: Annotated[str | None, typer.Option("--for", help="How long: 90m, 4h, 3d, 2w.")] = None,
    date: Annotated[str | None, typer.Option("--until", help="Until when, UTC: 2026-12-01, 2026-12-01T08:00.")] = None,
) -> None:
    """Leave open changes alone for a while: not listed and not counted until then. Detections go on, pauses stay."""
    from instep.bootstrap import user
    from instep.control.reviews import snooze as snooze_it
    from instep.control.reviews import until

    end = until(length, date, datetime.now(UTC))
    with open_app() as app:
        found = _chosen(app, ids, match, kind, table, connection)
        outlooks = {name: _keeping(app, name, group, rejected=False) for name, group in _by_connection(found)}
        _ask(found, outlooks, "Snooze")
        done = snooze_it(app.store, found, end, user())
    _finish(done, outlooks, f"not listed before {end:%Y-%m-%d %H:%M} UTC")


def map_columns(
    old: Annotated[
        str, typer.Argument(help="The column that the source dropped (schema.table.column), or a proposal.")
    ],
    new: Annotated[str | None, typer.Argument(help="The column that took its place: schema.table.column.")] = None,
    connection: Annotated[str | None, typer.Option("--connection", "-c", help="Its connection.")] = None,
) -> None:
    """Say that a removed column and an added one are one that was renamed: old rows keep their values.

    Two paths of tables (schema.table) say the same of two tables: the rows stay under the new name.

    The id of a proposal (a suspected rename in `changes list`) stands for its two columns or tables."""
    from instep.cli.context import one_connection

    with open_app() as app:
        if new is None:
            data = _map_proposal(app, app.store.reviews.get(old))
        else:
            data = _map(app, one_connection(app, connection), old, new)
    emit(data, lambda out: out.write(_mapped(data)))


def _mapped(data: dict[str, Any]) -> str:
    return f"mapped: schema version {data['version']}"


def _map_proposal(app: App, review: Review) -> dict[str, Any]:
    from instep.sync.changes.map import pair_of

    return _map(app, review.connection, *pair_of(review))


def _map(app: App, connection: str, old: str, new: str) -> dict[str, Any]:
    """Two paths of tables, or of columns."""
    from instep.sync.changes import map as map_columns
    from instep.sync.changes import map_tables

    pipe = app.pipe(connection)
    whole = old in {t.path for t in app.store.accepted.catalog(connection).tables}
    mapping: Any = map_tables if whole else map_columns
    mapped = mapping.prepare(pipe, old, new)
    for line in mapped.lines:
        console(stderr=True).write(f"  {line}")
    if _asks() and not confirm("Map them?"):
        raise Blocked("nothing was mapped", hint="answer yes, or pass --yes")
    version = mapping.carry_out(pipe, mapped)
    steps = [s.text for s in mapped.plan.steps]
    data = {"connection": pipe.name, "old": old, "new": new, "version": version, "steps": steps, "empty": mapped.empty}
    return data | {"backfill": whole or bool(mapped.empty)}


def _chosen(
    app: App,
    ids: list[str] | None,
    match: list[str] | None,
    kind: list[str] | None,
    table: list[str] | None,
    connection: str | None,
) -> list[Review]:
    from instep.control.reviews import Wish, choose

    name = connection and app.connection(connection)
    wish = Wish(tuple(ids or ()), name, tuple(match or ()), tuple(kind or ()), tuple(table or ()))
    return choose(app.store, wish)


def _parted(found: list[Review], *, named: bool) -> tuple[list[Review], list[Review]]:
    """(changes, suspected renames): approving one of those is mapping it. Filters that find changes leave them open,
    because their two sides may be among those; Blocked if ids name both."""
    from instep.schema.likeness import PROPOSAL

    renames = [r for r in found if r.rule == PROPOSAL]
    others = [r for r in found if r.rule != PROPOSAL]
    if named and renames and others:
        raise Blocked(
            f"change {renames[0].id} proposes a rename, the others are changes of their own: {renames[0].summary}",
            hint=f"answer it by itself: `instep changes map {renames[0].id}`, or reject it",
        )
    return others, [] if others else renames


def _by_connection(found: Sequence[Review]) -> list[tuple[str, list[Review]]]:
    ordered = sorted(found, key=lambda r: r.connection)
    return [(name, list(group)) for name, group in groupby(ordered, lambda r: r.connection)]


def _approving(app: App, connection: str, found: list[Review]) -> Outlook:
    from instep.store.reviews import STANDING
    from instep.sync.changes.answer import Outlook, approving

    standing = [r for r in found if r.status in STANDING]
    return approving(app.pipe(connection), standing) if len(standing) == len(found) else Outlook()


def _hashes(app: App, found: list[Review]) -> list[tuple[Place, list[Step]]]:
    """What hashes the columns of these changes; looked at before anything is answered."""
    from instep.control.selections import hashing, place_of

    places = [(place_of(app.project, app.store, name), group) for name, group in _by_connection(found)]
    return [(place, hashing(place, group)) for place, group in places]


def _hash(hashes: list[tuple[Place, list[Step]]]) -> None:
    from instep.bootstrap import user
    from instep.control.selections import switch

    for place, steps in hashes:
        switch(place, steps, user())


def _keeping(app: App, connection: str, found: list[Review], *, rejected: bool) -> Outlook:
    from instep.sync.changes.answer import keeping

    return keeping(app.pipe(connection), found, "rejected" if rejected else "open")


def _answered(app: App, found: list[Review], status: Answer, outlooks: dict[str, Outlook], word: str) -> list[Review]:
    from instep.bootstrap import user
    from instep.control.reviews import answer

    _ask(found, outlooks, word)
    return answer(app.store, found, status, user())


def _ask(found: Sequence[Review], outlooks: dict[str, Outlook], word: str) -> None:
    """Shows what the answer leads to and asks, on a terminal; elsewhere the command itself is the answer."""
    talk = console(stderr=True)
    for name, outlook in outlooks.items():
        if len(outlooks) > 1:
            talk.write(name, "bold")
        for line in outlook.lines:
            talk.write(line)
    if _asks() and not confirm(f"{word} {len(found)} change{'s' * (len(found) != 1)}?"):
        raise Blocked("nothing was answered", hint="answer yes, or pass --yes")


def _asks() -> bool:
    return options.interactive and not options.yes and sys.stdin.isatty()


def _finish(done: list[Review], outlooks: dict[str, Outlook], note: str) -> None:
    def render(out: Screen) -> None:
        show_changes(out, done)
        if note:
            out.write(note)

    outlook = {name: asdict(found) for name, found in outlooks.items()}
    emit({"changes": [asdict(r) for r in done], "outlook": outlook, "note": note}, render)


__all__ = ["approve", "ignore", "register", "reject", "snooze"]
