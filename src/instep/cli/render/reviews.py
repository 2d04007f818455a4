"""Changes as people read them: a list, or one of them with everything about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.model import Review
    from instep.operations.decide.sample_rename import RenameSample


def by_connection(reviews: Sequence[Review]) -> Iterator[tuple[str, list[Review]]]:
    """Yield (connection, its changes), ordered by name."""
    ordered = sorted(reviews, key=lambda r: r.connection)
    return ((name, list(group)) for name, group in groupby(ordered, lambda r: r.connection))


def show_detection(out: Screen, reviews: list[Review], counts: Mapping[str, Mapping[str, int]]) -> None:
    """Show the changes that a detection has found, and the counts of each level."""
    show_changes(out, reviews)
    for level, numbers in counts.items():
        out.write(f"{level}: {', '.join(f'{n} {word}' for word, n in numbers.items())}", "dim")


def show_changes(out: Screen, reviews: Sequence[Review]) -> None:
    """Print changes as a list."""
    from rich.table import Table as Grid
    from rich.text import Text

    from instep.cli.screen import cell
    from instep.plans.text import evidence_lines

    if not reviews:
        out.print("no changes")
        return
    if out.narrow:
        for r in reviews:
            _show_in_lines(out, r)
        return
    grid = Grid("id", "change", "decision", "by", "status", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for r in reviews:
        style = "yellow" if _asks(r) else ""
        what = Text("\n").join([cell(r.summary), *(cell(f"  {line}", "dim") for line in evidence_lines(r))])
        grid.add_row(r.id, what, r.action, cell(r.rule), cell(_status(r), style=style))
    out.print(grid)


def _show_in_lines(out: Screen, r: Review) -> None:
    from instep.plans.text import evidence_lines

    out.write(f"{r.id}  {r.summary}")
    for line in evidence_lines(r):
        out.write(f"          {line}", "dim")
    out.write(f"          {r.action}, by {r.rule}: {_status(r)}", "yellow" if _asks(r) else "dim")


def _asks(r: Review) -> bool:
    return r.status == "open" and r.action != "ignore"


def _status(r: Review) -> str:
    return f"{r.status}, snoozed until {r.snoozed_until:%Y-%m-%d %H:%M} UTC" if r.snoozed_until else r.status


def meanwhile_of(review: Review) -> str:
    """Return how values are treated while the change is blocked, "" if nothing differs or it is not blocked."""
    from instep.schema.changes.describe import change_from_dict
    from instep.schema.planning.explain import meanwhile
    from instep.schema.policy.policy import Action, Decision, Modifiers

    if review.action == "apply" or review.status not in ("open", "rejected"):
        return ""
    change, modifiers = change_from_dict(review.change), Modifiers(**review.modifiers)
    action = cast("Action", review.action)
    return meanwhile(Decision(change, action, review.rule, review.why, modifiers))


def show_one(out: Screen, r: Review, more: Sequence[str] = ()) -> None:
    """Print everything about one change, then the `more` lines."""
    out.write(f"{r.id}  {r.summary}", "bold")
    for name, value in (
        ("kind", r.kind),
        ("connection", r.connection),
        ("decision", f"{r.action}, by {r.rule}"),
        ("why", r.why),
        ("meanwhile", meanwhile_of(r)),
        ("status", r.status),
        ("first seen", f"{r.first_seen:%Y-%m-%d %H:%M:%S} UTC, {r.seen} time(s)"),
        ("snoozed", f"until {r.snoozed_until:%Y-%m-%d %H:%M} UTC" if r.snoozed_until else ""),
        ("assignee", r.assignee),
        ("answered", f"{r.decided_by} {r.decided_at or ''}".strip()),
    ):
        if value:
            out.write(f"  {name:<11} {value}")
    if r.evidence:
        out.write(f"  {'evidence':<11} {r.evidence['score']:.2f}")
    for part in r.evidence.get("evidence", ()):
        out.write(f"  {'':<11} {part}")
    for line in more:
        out.write(f"  {line}")


def show_sample(out: Screen, sample: RenameSample) -> None:
    """Show sampled values of both columns of a suspected rename as a table."""
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    out.write(f"{sample.old} → {sample.new}", "bold")
    if sample.note:
        out.write(f"  {sample.note}")
        return
    out.write(f"  {sample.same:,} of {sample.compared:,} sampled rows that have a value have the same one")
    columns = (*sample.key, sample.old.rpartition(".")[2], sample.new.rpartition(".")[2], "same")
    grid = Grid(*columns, box=None, header_style="bold", padding=(0, 2, 0, 0))
    nothing = "NULL" if sample.key else ""
    for pair in sample.pairs:
        values = (nothing if value is None else value for value in (pair.old, pair.new))
        grid.add_row(*map(cell, (*pair.key, *values)), cell("=" if pair.same else "≠", "" if pair.same else "yellow"))
    out.print(grid)
