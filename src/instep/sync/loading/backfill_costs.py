"""What the backfills take that decisions lead to, before they are applied: from statistics and metadata, no scan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from instep.errors import ProjectError
from instep.operations.queries.work import FillEstimate
from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import key, table_of
from instep.schema.planning.naming import destination_ref
from instep.schema.policy.policy import Decision
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.drift import reloads
from instep.sync.detection.swapped import may_be_swapped
from instep.sync.detection.table_renames import TableRenames
from instep.sync.loading.backfill import MODE
from instep.sync.schema_changes.apply import backfill_of
from instep.sync.schema_changes.backfill_plan import estimate_new, why_whole
from instep.sync.schema_changes.evolve import PlanPreview
from instep.sync.table_mode import choose


@dataclass(frozen=True)
class RequestedBackfill:
    """A backfill of the accepted table `ref`, of some columns or of all of it. `mode`: how the runs call it that did
    such a thing; `changes` are the ids of what asks for it."""

    ref: Ref
    mode: str
    size: FillEstimate
    changes: tuple[str, ...]


@dataclass
class _Table:
    """Backfills that the decisions cause for one table."""

    table: Table
    before: Table | None
    source: Ref
    whole: bool = False
    columns: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)


def requested_backfills(context: SyncContext, found: PlanPreview) -> tuple[RequestedBackfill, ...]:
    """Return requested backfills by table. Rows that only a cursor has left behind (detection/backfill_since.py) are
    part of the next sync."""
    tables: dict[Ref, _Table] = {}
    places = TableRenames.of(found.plan.decisions)
    for decision in found.plan.decisions:
        place, was = places.after(decision.change), places.before(decision.change)
        table, source = found.plan.after.get(place), table_of(decision.change)
        if not decision.applied or table is None or was in found.plan.refused or source is None:
            continue
        one = tables.get(place) or _Table(table, found.detection.accepted.get(was), source)
        if _add(context, found, decision, one):
            one.changes.append(found.reviews[key(decision.change)].id)
            tables[place] = one
    return tuple(a for one in tables.values() for a in _sized(context, found, one))


def _add(context: SyncContext, found: PlanPreview, decision: Decision, one: _Table) -> bool:
    """Return whether the decision asks for anything."""
    review = found.reviews.get(key(decision.change))
    if review is None:
        return False
    wanted = backfill_of(context, decision, one.before, found.plan)
    if reloads(context, found.plan, review, one.table.ref) or may_be_swapped(context, decision.change, one.table):
        wanted = ("table", "")
    if wanted is None or wanted[0] == "since":
        return False
    scope, column = wanted
    if scope == "table" or why_whole(context, one.table, column):
        one.whole = True
    else:
        one.columns.append(column)
    return True


def _sized(context: SyncContext, found: PlanPreview, one: _Table) -> Iterator[RequestedBackfill]:
    state = context.destination.schema.state(destination_ref(one.before, context.naming)) if one.before else None
    if state is None or not state.rows:
        return
    stats = found.detection.discovery.stats.get(one.source)
    rows, size = (stats.rows, stats.bytes) if stats and stats.rows else (state.rows, 0)
    columns = () if one.whole else tuple(one.columns)
    made = estimate_new(one.table, columns, rows, size)
    made = replace(made, files=state.files, of=state.files, rewritten=state.bytes)
    yield RequestedBackfill(one.table.ref, MODE if columns else _mode(context, one.table), made, tuple(one.changes))


def _mode(context: SyncContext, table: Table) -> str:
    try:
        return choose(table, context.settings(table)).mode
    except ProjectError:
        return ""
