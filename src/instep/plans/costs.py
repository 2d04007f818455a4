"""The cost of a plan: sizes from metadata, times from recorded runs, values that a type change would touch.

How long work will take, from what recorded runs took: with its range and what it rests on, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from instep.errors import InstepError
from instep.store.catalogs.plans import StepRecord
from instep.store.store import Store

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.model import Review
    from instep.operations.queries.work import FillEstimate as Size
    from instep.schema.planning.step import Step
    from instep.sync.loading.backfill import RequestedBackfill
    from instep.sync.schema_changes.evolve import PlanPreview
    from instep.sync.schema_changes.invalid_values import InvalidValues


Line = tuple[str, str]


def costs(app: App, connection: str, preview: PlanPreview, sample: int, *, keys: bool = True) -> dict[str, Any]:
    """Return `steps` (one entry per step with what it touches), `lossy` (type changes tried on up to `sample` rows,
    each with the key of a row that does not fit unless `keys` is false) and `held` (source values tried on the
    accepted type where a new one is not accepted)."""
    from instep.sync.loading.backfill import requested_backfills
    from instep.sync.schema_changes.invalid_values import invalid_values
    from instep.sync.schema_changes.lossy_casts import lossy_casts

    context, speeds = app.sync_context(connection), rates(app.store, connection)
    tried = [
        lossy_cast if keys else replace(lossy_cast, key="")
        for lossy_cast in lossy_casts(context, preview.detection, sample)
    ]
    return {
        "steps": [_step(app, connection, preview, step) for step in preview.plan.steps],
        "backfills": [_backfill(backfill, speeds) for backfill in requested_backfills(context, preview)],
        "lossy": [{**asdict(cast), "text": str(cast)} for cast in tried],
        "held": [
            _invalid_value(preview.reviews, invalid) for invalid in invalid_values(context, preview.detection, sample)
        ],
    }


def _step(app: App, connection: str, preview: PlanPreview, step: Step) -> dict[str, Any]:

    size = preview.impact.get(step.table)
    kind, path = step.change.kind, ".".join(step.table)
    touched = size is not None and kind in ("column.rewritten", "table.replaced")
    estimate = TimeEstimate()
    if size is not None and kind == "column.rewritten":
        estimate = rewriting(app.store, connection, path, size.rows)
    return {
        "id": step.id,
        "table": path,
        "text": step.text,
        "reversible": not (final := _final(step)),
        "final": final,
        "touches": asdict(size) if size is not None and touched else {"rows": 0, "bytes": 0, "files": 0},
        "estimate": {**asdict(estimate), "text": str(estimate)} if kind == "column.rewritten" and touched else None,
    }


def _backfill(backfill: RequestedBackfill, speeds: Sequence[Rate]) -> dict[str, Any]:

    estimate = reading(speeds, backfill.ref, backfill.mode, backfill.size.rows)
    data = {k: v for k, v in asdict(backfill.size).items() if k != "why_not"}
    data |= {"mode": backfill.mode, "changes": list(backfill.changes)}
    return {**data, "estimate": {**asdict(estimate), "text": str(estimate)}, "text": _takes(backfill.size)}


def tried_of(app: App, review: Review, sample: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the tests of an open type change as a plan shows them: up to `sample` source values tried on the
    accepted type, as long as a new one is not accepted, and values of the destination tried on the new type. Nothing
    for other changes, and for 0."""
    if review.kind not in ("column.retyped", "column.narrowed") or review.status != "open" or not sample:
        return [], []
    from instep.schema.changes.describe import change_from_dict, key
    from instep.sync.detection.detect import detect_if_changed
    from instep.sync.schema_changes.invalid_values import invalid_values
    from instep.sync.schema_changes.lossy_casts import lossy_casts

    context, content = app.sync_context(review.connection), key(change_from_dict(review.change))
    try:
        detection = detect_if_changed(context, count=False)
        counted = [
            _invalid_value({content: review}, invalid)
            for invalid in invalid_values(context, detection, sample, only=content)
        ]
        lossy = [
            {**asdict(lossy_cast), "text": str(lossy_cast)}
            for lossy_cast in lossy_casts(context, detection, sample, only=content)
        ]
    except InstepError as error:
        text = f"no source values were tried: {error.message}"
        return [{"change": review.id, "why_not": error.message, "text": text}], []
    return counted, lossy


def _invalid_value(reviews: Mapping[str, Review], invalid_values: InvalidValues) -> dict[str, Any]:
    return {**asdict(invalid_values), "change": reviews[invalid_values.change].id, "text": str(invalid_values)}


def _takes(work: Size) -> str:
    from instep.schema.planning.explain import size
    from instep.sync.loading.backfill import counted

    what = f"{work.table}.{', '.join(work.columns)} is filled" if work.columns else f"{work.table} is read again"
    read = f"reads about {counted(work.rows, 'row')}, {size(work.read)}{'' if work.sure else ' (estimated)'}"
    return f"{what}: {read}, from the source, writes {counted(work.files, 'file')} again, {size(work.rewritten)}"


def _final(step: Step) -> str:
    """Return why the step cannot be taken back, or when it no longer can; "" if it can."""
    from instep.schema.catalog.promotion import widens
    from instep.schema.planning.step import RewriteColumn
    from instep.schema.planning.undo import NEVER

    change, kind = step.change, step.change.kind
    if isinstance(change, RewriteColumn) and not widens(change.before.type, change.after.type):
        kind = "column.retyped"
    if why := NEVER.get(kind):
        return f"it cannot be undone: {why}"
    widened = isinstance(change, RewriteColumn) or not step.reversible
    return "undo is refused once a value needs the new type" if widened else ""


def _named(step: dict[str, Any]) -> str:
    """Return the step with its table, which most texts name themselves."""
    return step["text"] if step["table"] in step["text"] else f"{step['table']}: {step['text']}"


def cost_lines(data: dict[str, Any]) -> Iterator[Line]:
    """Return the lines on costs for people; a change of metadata alone has none."""
    heavy = [s for s in data["steps"] if s["estimate"]]
    fixed = [s for s in data["steps"] if not s["reversible"]]
    if heavy or fixed or data["backfills"] or data["lossy"] or data["held"]:
        yield "What it costs", "bold"
    for step in heavy:
        yield f"  {_named(step)}: {step['estimate']['text']}", ""
    for backfill in data["backfills"]:
        yield f"  {backfill['text']}: {backfill['estimate']['text']}", ""
    for step in fixed:
        yield f"  {_named(step)}: {step['final']}", "yellow"
    for backfill in data["lossy"]:
        yield f"  {backfill['text']}", "yellow" if backfill["invalid_values"] or backfill["changed"] else "dim"
    for backfill in data["held"]:
        yield f"  {backfill['text']}", "yellow" if backfill["invalid_values"] or backfill["why_not"] else "dim"


RUNS = 100
SHORTEST = 0.01
"""Seconds: what is over sooner says nothing about a rate."""


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds: the median, the least and the most."""

    seconds: float = 0.0
    low: float = 0.0
    high: float = 0.0
    runs: int = 0
    """Number of recorded runs behind it; 0: unknown."""
    own: bool = False
    """They are of the same table."""
    mode: str = ""
    """Mode of all these runs."""

    def __str__(self) -> str:
        if not self.runs:
            return "time unknown (no runs yet)"
        between = f" ({_span(self.low)} to {_span(self.high)})" if self.runs > 1 else ""
        what = f"{self.mode} run{'s' * (self.runs != 1)} of {'this table' if self.own else 'other tables'}".strip()
        return f"about {_span(self.seconds)}{between}, from {self.runs} {what}"


def _span(seconds: float) -> str:
    if seconds < 1:
        return "less than 1 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def from_rates(rows: int, rates: Iterable[float], *, own: bool) -> TimeEstimate:
    """Estimate from `rates`, rows per second of earlier runs."""
    times = sorted(rows / rate for rate in rates if rate > 0)
    if not times:
        return TimeEstimate()
    return TimeEstimate(median(times), times[0], times[-1], len(times), own)


@dataclass(frozen=True)
class Rate:
    """Speed of one run for one table."""

    table: tuple[str, str]
    mode: str
    speed: float
    """Rows per second, from the first one read to the commit."""


def rates(store: Store, connection: str) -> tuple[Rate, ...]:
    """Return the rates of the latest runs, newest first."""
    return tuple(_rates(store, connection))


def _rates(store: Store, connection: str) -> Iterator[Rate]:
    for run in store.runs.history(connection, limit=RUNS):
        if run.kind not in ("sync", "backfill"):
            continue
        for done in store.runs.tables(run.id):
            if done.status == "done" and done.read and done.seconds >= SHORTEST:
                yield Rate(done.table, done.mode, done.read / done.seconds)


def reading(speeds: Iterable[Rate], table: tuple[str, str], mode: str, rows: int) -> TimeEstimate:
    """Estimate reading `rows` of an accepted table in this mode and committing them: by runs of the table itself,
    else of others. Runs of another mode do not count: appending is not merging."""
    same = [rate for rate in speeds if rate.mode == mode]
    mine = [rate.speed for rate in same if rate.table == table]
    return replace(from_rates(rows, mine or [rate.speed for rate in same], own=bool(mine)), mode=mode)


def rewriting(store: Store, connection: str, path: str, rows: int) -> TimeEstimate:
    """Estimate rewriting `rows` of a destination table, by recorded steps that did so."""
    steps = store.steps.timed(connection, "column.rewritten", RUNS)
    took = [(s.at_table == path, s.rows / seconds) for s in steps if (seconds := _took(s)) >= SHORTEST]
    mine = [rate for own, rate in took if own]
    return from_rates(rows, mine or [rate for _, rate in took], own=bool(mine))


def _took(step: StepRecord) -> float:
    return (step.ended - step.started).total_seconds() if step.ended and step.started else 0.0
