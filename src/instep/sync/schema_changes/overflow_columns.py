"""The columns over the limit of one run: recorded in the accepted tables, and read beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from instep.model import Review
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import Change, column_of, table_of
from instep.schema.changes.kinds import ColumnAdded
from instep.schema.planning.overflow import additions_left_out, over_the_limit, was_extra, with_extra
from instep.schema.planning.projection import ColumnRead, TableRead, pair_tables
from instep.schema.selection.selection import Selection, column_is_on, hashed
from instep.sources.stream import Streams
from instep.store.catalogs.backfills import Backfill, Scope
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.detect import DetectionResult
from instep.sync.detection.table_renames import TableRenames

EXTRA: Scope = "extra"


def overflow_columns(context: SyncContext, detection: DetectionResult) -> dict[Ref, tuple[str, ...]]:
    """Return names of source columns whose values are kept, by accepted table as it is called once the decisions are
    applied: those over the limit, and all that are not accepted where the source cannot be read again."""
    places = TableRenames.of(detection.decisions)
    once = isinstance(context.source, Streams)
    added_columns = additions_left_out(detection.decisions) if once else over_the_limit(detection.decisions)
    return {places.after(changes[0]): tuple(c.after.name for c in changes) for changes in added_columns.values()}


def record_extra(context: SyncContext, after: Catalog, detection: DetectionResult) -> Catalog:
    """Return the accepted catalog that a plan leads to, with the names of what is kept as JSON."""
    source = pair_tables((t for t in after.tables if not t.retained), detection.source)
    return with_extra(after, overflow_columns(context, detection), source, _dropped(detection))


def _dropped(detection: DetectionResult) -> dict[Ref, set[str]]:
    """Return names of columns that a person does not want, by accepted table."""
    places, names = TableRenames.of(detection.decisions), defaultdict[Ref, set[str]](set)
    for decision in detection.decisions:
        if isinstance(decision.change, ColumnAdded) and decision.by_person and not decision.applied:
            names[places.after(decision.change)].add(decision.change.after.name)
    return names


def extra_reads(on: Selection, read: TableRead, overflow: Iterable[str]) -> tuple[ColumnRead, ...]:
    """Return how a table's extra columns are read: under names that no accepted column has. One that is off by now, or
    that the source has no more, is left out."""
    if read.table.extra is None:
        return ()
    names, extra = {c.column.name for c in read.columns}, []
    for name in overflow:
        column = read.source.by_name.get(name)
        if column is None or not column_is_on(on, read.source, column)[0]:
            continue
        own = name
        while own in names:
            own += "'"
        names.add(own)
        extra.append(ColumnRead(replace(column, name=own, key=0), column, hashed(on, read.source.ref, name)))
    return tuple(extra)


def request_overflow(context: SyncContext, before: Table | None, change: Change, review: Review, ref: Ref) -> None:
    """Request the kept values of a column that is accepted; of one that the source has dropped nothing is read."""
    if not was_extra(before, change):
        return
    store, column = context.store, column_of(change)
    cached, path = store.discoveries.get(context.name), table_of(change)
    table = cached.catalog.get(path) if cached and path else None
    if table is not None and column not in table.by_name:
        for b in store.backfills.waiting(context.name):
            if b.change == review.id and b.table == ref:
                store.backfills.cancel(b.number)
    store.backfills.request(context.name, ref, column=column, why=review.summary, change=review.id, scope=EXTRA)


def waiting(context: SyncContext) -> list[Backfill]:
    return [b for b in context.store.backfills.waiting(context.name) if b.scope == EXTRA]


def only_copies(read: TableRead, backfills: Iterable[Backfill]) -> tuple[str, ...]:
    """Return the columns of a table whose values are in its objects only and are still to be taken out, by the waiting
    `backfills`."""
    mine = (b for b in backfills if b.scope == EXTRA and b.table == read.table.ref)
    return tuple(b.column for b in mine if not is_read(b, {b.table: read}))


def is_read(backfill: Backfill, reads: Mapping[Ref, TableRead]) -> bool:
    """Return whether the source still feeds the column that a backfill is for."""
    read = reads.get(backfill.table)
    return read is not None and backfill.column in {c.column.name for c in read.columns if c.source is not None}
