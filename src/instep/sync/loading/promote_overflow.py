"""Move values of accepted overflow columns out of their JSON objects, where the source cannot supply them again.

What the source still has comes by the load or by a fill, and the objects of rows that are gone there are taken out
afterwards. Where the source has dropped the column, the objects are the only copy: they are taken out before anything
is loaded, and until that is done no load writes over them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from instep.crash import crashpoint
from instep.destinations.base import Commit
from instep.destinations.overflow import Hashing, OverflowColumn
from instep.errors import InstepError
from instep.model import Run, TableRun
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import DataType, String
from instep.schema.planning.naming import destination_ref
from instep.sources.stream import Streams
from instep.store.catalogs.backfills import Backfill
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.detect import DetectionResult
from instep.sync.loading.results import RunOutcome
from instep.sync.schema_changes.column_treatments import ColumnTreatments
from instep.sync.schema_changes.overflow_columns import EXTRA, is_read, waiting
from instep.sync.schema_changes.selected import selected_reads, sides_now


def promote_first(context: SyncContext, run: Run, detection: DetectionResult, outcome: RunOutcome) -> None:
    """Promote, before the loads, values that the source no longer has or does not send again."""
    if pending := waiting(context):
        once = isinstance(context.source, Streams)
        reads = {r.table.ref: r for r in selected_reads(context, detection)[0]}
        stopped = {*context.store.pauses.tables(context.name), *detection.unkeyed(moved=True), *detection.denied}
        only_here = [b for b in pending if b.table not in stopped and (once or not is_read(b, reads))]
        _promote(context, run, only_here, outcome)


def promote_rest(context: SyncContext, run: Run, outcome: RunOutcome) -> None:
    """Promote, after the loads and backfills, values of rows that these did not reach. What waits for a fill waits for
    it here, too."""
    if not (pending := waiting(context)):
        return
    ended = {d.load.table.ref: d.load.complete for d in outcome.loaded if d.error is None}
    others = (b for b in context.store.backfills.waiting(context.name) if b.scope != EXTRA)
    filling = {(b.table, b.column) for b in others if not ended.get(b.table)}
    ready = [b for b in pending if b.table in ended and not {(b.table, b.column), (b.table, "")} & filling]
    _promote(context, run, ready, outcome)


def _promote(context: SyncContext, run: Run, pending: Iterable[Backfill], outcome: RunOutcome) -> None:
    """Promote table after table; the failure of one leaves the others alone, and its backfill pending."""
    tables: dict[Ref, list[Backfill]] = {}
    for backfill in pending:
        tables.setdefault(backfill.table, []).append(backfill)
    for ref, backfills in tables.items():
        table = context.store.accepted.catalog(context.name).get(ref)
        gone = [b for b in backfills if table is None or b.column not in table.by_name]
        _end(context, gone, "cancelled")
        if table is not None and (waiting_here := [b for b in backfills if b not in gone]):
            try:
                _table(context, run, table, waiting_here, outcome)
            except InstepError as error:
                outcome.filled[ref] = TableRun(run.id, ref, "failed", EXTRA, error=f"kept values: {error}")


def _table(context: SyncContext, run: Run, table: Table, backfills: Collection[Backfill], outcome: RunOutcome) -> None:
    destination, ref = context.destination, destination_ref(table, context.naming)
    crashpoint("promote.before")
    destination.write.claim(ref, run.fence)
    extra = f"{context.naming.prefix}extra"
    columns = _columns(context, table, backfills)
    done = destination.write.promote(
        ref, columns, extra, Commit(run.id, run.fence), context.workers(table.path, "promote")
    )
    names = ", ".join(b.column for b in backfills)
    if done.rows:
        outcome.note(f"{table.path}: {names} taken out of {extra} in {done.rows:,} rows")
    if done.invalid_values:
        outcome.note(f"{table.path}: {done.invalid_values:,} values of {names} do not fit and stay in {extra}")
        return
    _end(context, backfills, "done")
    crashpoint("promote.done")


def _columns(context: SyncContext, table: Table, backfills: Iterable[Backfill]) -> dict[str, OverflowColumn]:
    """Return the overflow columns by destination column.

    The source's types matter where one is hashed, and are read once: a discovery is big.
    """
    filled, on = [(table.by_name[b.column], b) for b in backfills], sides_now(context)
    treatments = ColumnTreatments(replace(context, selection=on.now, before=on.before), table)
    hidden = {c.name for c, _ in filled if treatments.of(c.name).is_hashed}
    types = _types_at_source(context, table) if hidden else {}
    return {c.alias or c.name: _overflow_column(context, c, b, types, is_hashed=c.name in hidden) for c, b in filled}


def _types_at_source(context: SyncContext, table: Table) -> dict[str, DataType]:
    cached = context.store.discoveries.get(context.name)
    source = cached.catalog.get(table.ref) if cached else None
    return {c.name: c.type for c in source.columns} if source else {}


def _overflow_column(
    context: SyncContext,
    column: Column,
    backfill: Backfill,
    types: Mapping[str, DataType],
    *,
    is_hashed: bool,
) -> OverflowColumn:
    """Return the kept values of a column."""
    # what the column was called while it was kept: it may have another name by now
    name = context.store.reviews.get(backfill.change).column if backfill.change else backfill.column
    if not is_hashed:
        return OverflowColumn(name, column.type)
    return OverflowColumn(name, column.type, Hashing(types.get(name, String()), context.salt))


def _end(context: SyncContext, backfills: Iterable[Backfill], how: str) -> None:
    with context.transaction():
        for backfill in backfills:
            if how == "done":
                context.store.backfills.done(backfill.number)
                context.store.loaded.fill(context.name, backfill.table, backfill.column)
            else:
                context.store.backfills.cancel(backfill.number)
