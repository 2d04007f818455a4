"""What a plan costs: sizes from metadata, times from recorded runs, values that a type change would touch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.schema.step import Step
    from instep.sync.evolve import Preview

Line = tuple[str, str]


def costs(app: App, connection: str, found: Preview, sample: int) -> dict[str, Any]:
    """`steps`: one entry a step with what it touches; `lossy`: type changes tried on up to `sample` rows."""
    from instep.sync.lossy import lossy_casts

    tried = lossy_casts(app.pipe(connection), found.detection, sample)
    return {
        "steps": [_step(app, connection, found, step) for step in found.plan.steps],
        "lossy": [{**asdict(one), "text": str(one)} for one in tried],
    }


def _step(app: App, connection: str, found: Preview, step: Step) -> dict[str, Any]:
    from instep.control.estimates import Estimate, reading, rewriting

    size = found.impact.get(step.table)
    kind, path = step.change.kind, ".".join(step.table)
    touched = size is not None and kind in ("column.rewritten", "table.replaced")
    estimate = Estimate()
    if size is not None and kind == "column.rewritten":
        estimate = rewriting(app.store, connection, path, size.rows)
    elif size is not None and kind == "table.replaced":
        estimate = reading(app.store, connection, _source(found, step), size.rows)
    return {
        "id": step.id, "table": path, "text": step.text, "reversible": not (final := _final(step)), "final": final,
        "touches": asdict(size) if size is not None and touched else {"rows": 0, "bytes": 0, "files": 0},
        "estimate": {**asdict(estimate), "text": str(estimate)} if touched else None,
    }  # fmt: skip


def _final(step: Step) -> str:
    """Why the step cannot be taken back, or when it no longer can; "" if it can."""
    from instep.schema.step import RewriteColumn
    from instep.schema.undo import NEVER
    from instep.schema.widen import widens

    change, kind = step.change, step.change.kind
    if isinstance(change, RewriteColumn) and not widens(change.before.type, change.after.type):
        kind = "column.retyped"
    if why := NEVER.get(kind):
        return f"it cannot be undone: {why}"
    widened = isinstance(change, RewriteColumn) or not step.reversible
    return "undo is refused once a value needs the new type" if widened else ""


def _source(found: Preview, step: Step) -> tuple[str, str]:
    """The accepted table that a destination table holds."""
    wanted = found.plan.wanted.get(step.table)
    same = (t.ref for t in found.plan.after.tables if wanted is not None and t.path == wanted.alias)
    return next(same, ("", ""))


def _named(step: dict[str, Any]) -> str:
    """The step with its table, which most texts name themselves."""
    return step["text"] if step["table"] in step["text"] else f"{step['table']}: {step['text']}"


def cost_lines(data: dict[str, Any]) -> Iterator[Line]:
    """What is worth telling people; a change of metadata alone is not."""
    heavy = [s for s in data["steps"] if s["estimate"]]
    fixed = [s for s in data["steps"] if not s["reversible"]]
    if heavy or fixed or data["lossy"]:
        yield "What it costs", "bold"
    for step in heavy:
        yield f"  {_named(step)}: {step['estimate']['text']}", ""
    for step in fixed:
        yield f"  {_named(step)}: {step['final']}", "yellow"
    for one in data["lossy"]:
        yield f"  {one['text']}", "yellow" if one["misfits"] or one["changed"] else "dim"
