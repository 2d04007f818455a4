"""`instep changes approve`, `reject`, `ignore`, `snooze`, `reopen`: a person's answers, with what they lead to."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.cli.arguments import ChangeIds, ChangeKind, ChangeMatch, ChangeTable, OfConnection, OnlyConnection, examples
from instep.cli.backend import open_backend
from instep.cli.context import confirm, console, emit, options
from instep.cli.render.reviews import by_connection, show_changes, show_sample
from instep.errors import Blocked
from instep.operations.decide.declare_rename import DeclareRenameRequest
from instep.operations.decide.sample_rename import SampleRenameRequest

if TYPE_CHECKING:
    from instep.backends.protocol import Backend
    from instep.cli.screen import Screen
    from instep.model import Review
    from instep.operations.decide.sample_rename import RenameSample
    from instep.operations.immediate.decisions import AnswerPreview
    from instep.operations.values import Answer, ReviewStatus


def add_answers(changes: typer.Typer) -> None:
    changes.command(
        epilog=examples("instep changes approve c-7f3a2b", "instep changes approve --match 'public.order.*'")
    )(approve)
    changes.command(
        "map",
        epilog=examples("instep changes map c-7f3a2b", "instep changes map public.order.note public.order.remark"),
    )(map_columns)
    changes.command(epilog=examples("instep changes sample c-7f3a2b"))(sample)
    changes.command(epilog=examples("instep changes reject c-7f3a2b"))(reject)
    changes.command(epilog=examples("instep changes ignore c-7f3a2b", "instep changes ignore --kind column.added"))(
        ignore
    )
    changes.command(
        epilog=examples(
            "instep changes snooze c-7f3a2b --for 3d", "instep changes snooze --kind key --until 2026-12-01"
        )
    )(snooze)
    changes.command(epilog=examples("instep changes reopen c-7f3a2b", "instep changes reopen --kind column.added"))(
        reopen
    )
    changes.command(epilog=examples("instep changes comment c-7f3a2b 'the shop team renames it on Monday'"))(comment)
    changes.command(
        epilog=examples("instep changes assign c-7f3a2b --to ann", "instep changes assign --kind key --to ann")
    )(assign)


def approve(
    ids: ChangeIds = None,
    match: ChangeMatch = None,
    kind: ChangeKind = None,
    table: ChangeTable = None,
    connection: OnlyConnection = None,
    hashed: Annotated[bool, typer.Option("--hash", help="Accept the columns as salted SHA-256 hashes.")] = False,
) -> None:
    """Approve changes: the next plan, apply or sync carries them out.

    Shows first what that does. An approval is bound to the table as it was shown: it is refused (exit 5) if the source
    or the accepted schema has changed since.
    """
    with open_backend() as backend:
        reviews, renames = _parted(_chosen(backend, ids, match, kind, table, connection), named=bool(ids))
        if renames:
            mapped = [_map_proposal(backend, r) for r in renames]
            emit({"mapped": mapped}, lambda out: out.write("\n".join(map(_mapped, mapped))))
            return
        _answer(backend, reviews, "approved", "Approve", hashed=hashed)


def reject(
    ids: ChangeIds = None,
    match: ChangeMatch = None,
    kind: ChangeKind = None,
    table: ChangeTable = None,
    connection: OnlyConnection = None,
) -> None:
    """Reject changes; you are not asked again while they stay the same."""
    with open_backend() as backend:
        _answer(backend, _chosen(backend, ids, match, kind, table, connection), "rejected", "Reject")


def ignore(
    ids: ChangeIds = None,
    match: ChangeMatch = None,
    kind: ChangeKind = None,
    table: ChangeTable = None,
    connection: OnlyConnection = None,
) -> None:
    """Reject and mute: no further notices unless the change itself changes."""
    note = "muted until the change itself changes; run `instep changes approve ID` to accept it after all"
    with open_backend() as backend:
        _answer(backend, _chosen(backend, ids, match, kind, table, connection), "ignored", "Ignore", note)


def snooze(
    ids: ChangeIds = None,
    match: ChangeMatch = None,
    kind: ChangeKind = None,
    table: ChangeTable = None,
    connection: OnlyConnection = None,
    length: Annotated[str | None, typer.Option("--for", help="For this long: 90m, 4h, 3d, 2w.")] = None,
    date: Annotated[
        str | None, typer.Option("--until", help="Until this time (UTC): 2026-12-01, 2026-12-01T08:00.")
    ] = None,
) -> None:
    """Hide open changes until a given time.

    Detection continues; pauses stay in effect.
    """
    from instep.backends.calls import snooze_changes
    from instep.control.reviews import until

    end = until(length, date, datetime.now(UTC))
    with open_backend() as backend:
        chosen = _chosen(backend, ids, match, kind, table, connection)
        previews = _ask(backend, chosen, None, "Snooze")
        _show(snooze_changes(backend, chosen, end), previews, f"not listed before {end:%Y-%m-%d %H:%M} UTC")


def reopen(
    ids: ChangeIds = None,
    match: ChangeMatch = None,
    kind: ChangeKind = None,
    table: ChangeTable = None,
    connection: OnlyConnection = None,
) -> None:
    """Take back answers and snoozes: the changes wait for a review again.

    `instep undo` takes back an applied change. Filters find answered changes; name a snoozed one by its id.
    """
    from instep.backends.calls import reopen_changes

    with open_backend() as backend:
        chosen = _chosen(backend, ids, match, kind, table, connection, ("approved", "rejected"))
        _show(reopen_changes(backend, chosen), {}, "open again; `instep undo ID` takes back what is applied")


def map_columns(
    old: Annotated[
        str, typer.Argument(help="The dropped column (SCHEMA.TABLE.COLUMN), or the id of a suspected rename.")
    ],
    new: Annotated[str | None, typer.Argument(help="The column that replaces it (SCHEMA.TABLE.COLUMN).")] = None,
    connection: OfConnection = None,
) -> None:
    """Declare that a dropped and an added column are one renamed column.

    Old rows keep their values. Two tables (SCHEMA.TABLE) declare a renamed table: its rows stay under the new name. The
    id of a suspected rename in `changes list` stands for both of its columns or tables.
    """
    from instep.backends.calls import find_change

    with open_backend() as backend:
        if new is None:
            data = _map_proposal(backend, find_change(backend, old))
        else:
            data = _map(backend, backend.connection(connection), old, new)
    emit(data, lambda out: out.write(_mapped(data)))


def sample(id: Annotated[str, typer.Argument(help="The id of a suspected rename of a column.")]) -> None:
    """Show sampled values of both columns of a suspected rename side by side.

    By key where the table has one. Values of hashed columns, and of columns that look personal, are not shown.
    """
    from instep.backends.calls import find_change

    with open_backend() as backend:
        change = find_change(backend, id)
        sampled: RenameSample = backend.operations.run(change.connection, SampleRenameRequest(change=change.id))
    emit(asdict(sampled), lambda out: show_sample(out, sampled))


def comment(
    id: Annotated[str, typer.Argument(help="A change's id from `changes list`.")],
    text: Annotated[str, typer.Argument(help="The comment.")],
) -> None:
    """Comment on a change; `changes show` lists the comments."""
    from instep.backends.calls import comment_change

    with open_backend() as backend:
        done = comment_change(backend, id, text)
    emit(asdict(done), lambda out: out.write(f"commented on {done.change}"))


def assign(
    assignee: Annotated[str, typer.Option("--to", metavar="NAME", help="The person to assign them to; '' for nobody.")],
    ids: ChangeIds = None,
    match: ChangeMatch = None,
    kind: ChangeKind = None,
    table: ChangeTable = None,
    connection: OnlyConnection = None,
) -> None:
    """Assign changes to a person."""
    from instep.backends.calls import assign_changes

    with open_backend() as backend:
        done = assign_changes(backend, _chosen(backend, ids, match, kind, table, connection), assignee)

    def render(out: Screen) -> None:
        for one in done:
            out.write(f"{one.id} is assigned to {one.assignee or 'nobody'}")

    emit({"changes": [asdict(one) for one in done]}, render)


def _mapped(data: dict[str, Any]) -> str:
    return f"mapped: schema version {data['version']}"


def _map_proposal(backend: Backend, review: Review) -> dict[str, Any]:
    from instep.sync.schema_changes.declare_column_rename import pair_of

    return _map(backend, review.connection, *pair_of(review))


def _map(backend: Backend, connection: str, old: str, new: str) -> dict[str, Any]:
    """Return two paths of tables, or of columns."""
    made = backend.operations.prepare(connection, DeclareRenameRequest(old=old, new=new))
    for line in made.lines:
        console(stderr=True).write(f"  {line}")
    if _asks() and not confirm("Map them?"):
        raise Blocked("no rename was declared", hint="confirm, or pass --yes")
    return {**made.document, **backend.operations.execute(made)}


def _chosen(
    backend: Backend,
    ids: list[str] | None,
    match: list[str] | None,
    kind: list[str] | None,
    table: list[str] | None,
    connection: str | None,
    statuses: tuple[ReviewStatus, ...] = ("open",),
) -> list[Review]:
    from instep.backends.calls import choose_changes
    from instep.control.reviews import ChangeFilter

    change_filter = ChangeFilter(
        tuple(ids or ()), connection, tuple(match or ()), tuple(kind or ()), tuple(table or ())
    )
    return choose_changes(backend, change_filter, statuses)


def _parted(reviews: list[Review], *, named: bool) -> tuple[list[Review], list[Review]]:
    """Return (changes, suspected renames); approving a suspected rename declares it. Filters that find changes leave
    the renames open, because both sides may be among them. Raises Blocked if ids name both."""
    from instep.schema.policy.similarity import PROPOSAL

    renames = [r for r in reviews if r.rule == PROPOSAL]
    others = [r for r in reviews if r.rule != PROPOSAL]
    if named and renames and others:
        raise Blocked(
            f"change {renames[0].id} is a suspected rename, the others are separate changes: {renames[0].summary}",
            hint=f"answer it separately: `instep changes map {renames[0].id}`, or reject it",
        )
    return others, [] if others else renames


def _answer(
    backend: Backend, reviews: list[Review], answer: Answer, word: str, note: str = "", *, hashed: bool = False
) -> None:
    from instep.backends.calls import answer_changes

    previews = _ask(backend, reviews, answer, word)
    _show(answer_changes(backend, reviews, answer, hashed=hashed), previews, note)


def _ask(backend: Backend, reviews: list[Review], answer: Answer | None, word: str) -> dict[str, AnswerPreview]:
    """Show what the answer leads to and ask, on a terminal; elsewhere the command itself is the answer."""
    previews = {name: backend.preview_answer(name, group, answer) for name, group in by_connection(reviews)}
    talk = console(stderr=True)
    for name, preview in previews.items():
        if len(previews) > 1:
            talk.write(name, "bold")
        for line in preview.lines:
            talk.write(line)
    if _asks() and not confirm(f"{word} {len(reviews)} change{'s' * (len(reviews) != 1)}?"):
        raise Blocked("no change was decided", hint="confirm, or pass --yes")
    return previews


def _asks() -> bool:
    return options.interactive and not options.yes and sys.stdin.isatty()


def _show(done: list[Review], previews: dict[str, AnswerPreview], note: str) -> None:
    def render(out: Screen) -> None:
        show_changes(out, done)
        if note:
            out.write(note)

    consequences = {name: asdict(preview) for name, preview in previews.items()}
    emit({"changes": [asdict(r) for r in done], "consequences": consequences, "note": note}, render)


__all__ = ["add_answers", "approve", "ignore", "reject", "reopen", "snooze"]
