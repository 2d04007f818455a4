"""New types that a destination's columns cannot take: their changes wait, the others of their tables go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.promotion import widens
from instep.schema.changes.describe import ColumnNarrowed, ColumnRetyped, ColumnWidened, TableReplaced
from instep.schema.planning.accept import defer_blocked
from instep.schema.planning.guard import Guards, column_offences
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.plan import Plan
from instep.schema.planning.step import RewriteColumn
from instep.schema.policy.policy import Decision
from instep.sources.stream import Streams
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.detect import DetectionResult
from instep.sync.detection.refused import for_review
from instep.sync.detection.table_renames import TableRenames
from instep.sync.table_mode import mode_name

Unfit = tuple[Ref, Column, str]
"""Destination table, the column as the plan would leave it, and why that cannot be."""
_TYPED = ColumnWidened | ColumnNarrowed | ColumnRetyped


def unfit_columns(context: SyncContext, plan: Plan, guards: Mapping[Ref, Guards]) -> list[Unfit]:
    """Find the columns whose new type the table's layout or values of rows loaded before do not allow; reads those
    values. A new generation of a table has none of them."""
    offences = [*column_offences(plan, guards)]
    refused = {(ref, column.name) for ref, column, _ in offences}
    return [*offences, *(u for u in _unfit(context, plan) if (u[0], u[1].name) not in refused)]


def _unfit(context: SyncContext, plan: Plan) -> Iterator[Unfit]:
    for group in plan.groups():
        changes = [s.change for s in group.steps]
        rewritten = [c for c in changes if isinstance(c, RewriteColumn) and not widens(c.before.type, c.after.type)]
        if any(isinstance(c, TableReplaced) for c in changes) or not rewritten:
            continue
        if context.destination.schema.state(group.ref) is None:  # its rows go with the next load: a rebuild waits
            continue
        for change in rewritten:
            name, kind = change.before.name, change.after.type
            if count := context.destination.write.count_invalid_values(change.table, name, kind).count:
                values = "1 value" if count == 1 else f"{count:,} values"
                yield (
                    group.ref,
                    change.after,
                    (
                        f"{name} keeps its type: {values} of rows loaded before would not fit {kind} "
                        "(reject the change, or reload the table and keep a copy: `table set-key TABLE KEY --rebuild`)"
                    ),
                )


def read_whole(context: SyncContext, plan: Plan, unfit: Sequence[Unfit]) -> frozenset[Ref]:
    """Return the accepted tables among these whose rows are all read by each sync: no value there has to fit, as the
    next load fills a new generation."""
    refs = {ref for ref, _, _ in unfit}
    tables = (t for t in plan.after.tables if destination_ref(t, context.naming) in refs)
    return frozenset(t.ref for t in tables if _is_read_whole(context, t))


def _is_read_whole(context: SyncContext, table: Table) -> bool:
    if table.key or table.history or table.cursor or context.shard or isinstance(context.source, Streams):
        return False
    if any(c.retained for c in table.columns):
        return False
    return mode_name(table, context.settings(table)) == "full_refresh"


def block_columns(
    context: SyncContext, detection: DetectionResult, plan: Plan, unfit: Sequence[Unfit]
) -> tuple[DetectionResult, dict[Ref, str]]:
    """Return the detection with the changes of these columns held, and the destination tables (with why) of columns
    that no change is about."""
    tables = {destination_ref(t, context.naming): t.ref for t in plan.after.tables}
    places, decisions = TableRenames.of(detection.decisions), list(detection.decisions)
    others: dict[Ref, str] = {}
    for ref, column, why in unfit:
        places_about = [i for i, d in enumerate(decisions) if _is_about(d, places, tables.get(ref), column)]
        for index in places_about:
            decisions[index] = for_review(decisions[index], why)
        if not places_about:
            others[ref] = why
    return replace(detection, decisions=defer_blocked(decisions, detection.accepted)), others


def _is_about(decision: Decision, places: TableRenames, table: Ref | None, column: Column) -> bool:
    change = decision.change
    if not decision.applied or not isinstance(change, _TYPED) or places.after(change) != table:
        return False
    return change.after.name == column.alias or (column.id is not None and change.after.id == column.id)
