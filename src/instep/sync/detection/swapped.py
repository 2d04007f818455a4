"""Names that may mean other columns than before, in a source without column ids: two that were swapped, or one that
was dropped and added again, show as another order only. Rows that a cursor does not find again would keep the wrong
values, so that such a table is read anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.promotion import fitting
from instep.schema.changes.describe import Change, ColumnAdded, ColumnRemoved, ColumnReordered, TableAdded
from instep.schema.policy.policy import Decision
from instep.sources.stream import Streams
from instep.sync.context import SyncContext
from instep.sync.detection.detect import DetectionResult
from instep.sync.detection.table_renames import TableRenames
from instep.sync.table_mode import mode_of

WHY = "the order of its columns has changed, and without column ids names may have been swapped"


def may_be_swapped(context: SyncContext, change: Change, table: Table | None) -> bool:
    """Return whether a reordering may be a swap of columns; `table` is the accepted one that the change leads to."""
    if not isinstance(change, ColumnReordered) or table is None or any(c.id for c in table.live):
        return False
    mode = mode_of(table, context.settings(table))
    return mode is not None and mode.cursor is not None


def swap_notes(context: SyncContext, detection: DetectionResult, accepted: Catalog) -> Iterator[str]:
    """Yield one sentence a table that is read anew for that."""
    places = TableRenames.of(detection.decisions)
    for decision in detection.applied:
        table = accepted.get(places.after(decision.change))
        if table is not None and may_be_swapped(context, decision.change, table):
            yield f"{table.path}: {WHY}: the whole table is read again"


def reuses_old_values(context: SyncContext, table: Table | None, change: Change, decisions: Iterable[Decision]) -> bool:
    """Return whether what is added goes on in what was kept of it, with old values that nobody has read since; `table`
    is the accepted one before. Values that are there cannot be told from those of today: filling NULLs is not
    enough."""
    if table is None or not isinstance(change, ColumnAdded):
        return table is not None and isinstance(change, TableAdded) and table.retained
    went = {
        d.change.before.name
        for d in decisions
        if isinstance(d.change, ColumnRemoved)
        and d.applied
        and d.change.table == change.table
        and (d.modifiers.removed == "retain" or context.shard)
    }
    new = change.after
    if context.shard and new.name in went | _dropped(context, table):
        return True
    retained = (c for c in table.columns if c.retained or c.name in went)
    return any(
        fitting(c.type, new.type) for c in retained if c.name == new.name or (c.retained and c.id and c.id == new.id)
    )


def keeps_old_values(
    context: SyncContext, table: Table | None, decision: Decision, decisions: Sequence[Decision]
) -> bool:
    """Return whether a column that returns to a stream goes on with its old values in rows that do not change: the
    source sends these again only where policy asks for it."""
    if not isinstance(context.source, Streams) or not isinstance(decision.change, ColumnAdded):
        return False
    return decision.modifiers.backfill == "none" and reuses_old_values(context, table, decision.change, decisions)


def _dropped(context: SyncContext, table: Table) -> set[str]:
    """Return the columns that this shard has ever dropped from a table: as long as another shard has one, it stays in
    the shared table with the values of then."""
    removed = context.store.reviews.find(context.name, ["applied"], kinds=["column.removed"])
    return {review.column for review in removed if review.table == table.ref}
