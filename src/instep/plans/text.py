"""A plan, and how tables are synced, as lines with styles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.model import EngineUse, Review
    from instep.schema.catalog.catalog import Table
    from instep.sync.schema_changes.evolve import PlanPreview
    from instep.sync.table_mode import TableMode

Line = tuple[str, str]
_SIGNS = {"+": "green", "-": "red", "~": "yellow", "!": "bold yellow"}


def plan_lines(preview: PlanPreview, engine: EngineUse, *, every: bool) -> Iterator[Line]:
    """Yield the plan, what waits with its id, what a column added to a table with a cursor means, and the modes."""
    from instep.schema.planning.explain import NOTHING, explain

    for line in explain(preview.plan, preview.impact):
        if line != NOTHING or not (preview.missing or preview.partial):
            yield line, _style(line)
    yield from proposal_lines(preview)
    yield from _waiting(preview)
    for sentence in (*preview.partial, *preview.old_names, *preview.detection.notes):
        yield sentence, "yellow"
    yield from _modes(preview, engine, every=every)


def _style(line: str) -> str:
    text = line.strip()
    if line and not line.startswith(" "):
        return "bold"
    return _SIGNS.get(text[:1], "dim") if text[1:2] == " " else "dim"


def _waiting(preview: PlanPreview) -> Iterator[Line]:
    """Return the changes that wait, without suspected renames, which have commands of their own."""
    from instep.schema.policy.similarity import PROPOSAL

    waiting = [r for r in preview.reviews.values() if r.id in preview.waiting and r.status == "open"]
    ids = [r.id for r in waiting if r.rule != PROPOSAL]
    if ids:
        yield f"Waiting for you: {', '.join(ids)}", "bold yellow"
        yield (
            f"  instep changes show {ids[0]} · instep changes approve {ids[0]} · instep changes reject {ids[0]}",
            "dim",
        )


def _modes(preview: PlanPreview, engine: EngineUse, *, every: bool) -> Iterator[Line]:
    accepted = {t.ref for t in preview.detection.accepted.tables}
    tables = [t for t in preview.plan.after.tables if t.ref in preview.choices and (every or t.ref not in accepted)]
    if tables:
        yield "How tables are synced", "bold"
    for table in tables:
        yield f"  {_mode(table, preview.choices[table.ref])}", ""
    if tables:
        yield f"  rows are read by {engine}", ""


def _mode(table: Table, choice: TableMode) -> str:
    deletes = f", deletes {choice.deletes}" if choice.mode in ("upsert", "cdc", "stream") else ""
    hint = f"; {choice.suggestion}" if choice.suggestion else ""
    return f"{table.path}: {choice.mode}{deletes} ({choice.why}{hint})"


def proposal_lines(preview: PlanPreview) -> Iterator[tuple[str, str]]:
    """Yield the suspected renames of a detection that are open, or approved and not applied yet, with their ids."""
    from instep.schema.policy.similarity import PROPOSAL

    proposals = [r for r in preview.reviews.values() if r.rule == PROPOSAL and r.status in ("open", "approved")]
    if proposals:
        yield "Suspected renames", "bold"
    for review in proposals:
        pair, *signs = evidence_lines(review)
        yield f"  ? {'.'.join(filter(None, review.table))}: {pair}", "yellow"
        for sign in signs:
            yield f"        {sign}", "dim"
        if review.status == "approved":
            yield f"        {review.id}: {review.decided_by} approved it: the next sync maps the two", "dim"
            continue
        yield f"        {review.id}: `instep changes map {review.id}`, or `instep changes reject {review.id}`", "dim"


def evidence_lines(r: Review) -> list[str]:
    """Return the pair of a suspected rename with its score, and what that is made of."""
    return [_pair(r), *r.evidence["evidence"]] if r.evidence else []


def _pair(review: Review) -> str:
    """Return `old -> new: score`, without the evidence behind the score."""
    line: str = review.evidence["line"]
    return line.removesuffix("; ".join(review.evidence["evidence"])).rstrip(": ")
