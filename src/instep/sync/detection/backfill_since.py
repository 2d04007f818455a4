"""Rows that changed in a column between its first sight and the day that it was accepted.

Their cursor has moved on without the column's value, so a sync that begins at the recorded cursor never sees them
again. The cursor of a table is noted when a column is held for the first time, and the first load that has the column
begins there.
"""

from __future__ import annotations

from collections.abc import Iterable

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.changes.describe import Change, ColumnAdded
from instep.schema.policy.policy import Decision
from instep.sources.stream import Streams
from instep.store.catalogs.backfills import Backfill, Seen
from instep.sync.context import SyncContext
from instep.sync.detection.table_renames import TableRenames

NO_CURSOR = "{}"
"""Noted where nothing is known: the cursor of no column, so that the whole table is read."""


def identity(table: Table, column: Column) -> Seen:
    """Return the identity of a column: by ids, so that renames do not matter; by names if the source has no ids."""
    return table.id or table.path, column.id or column.name


def note_cursors(context: SyncContext, decisions: Iterable[Decision], accepted: Catalog) -> None:
    """Record cursors for columns that are newly blocked. Of a table without a record nobody knows where its cursor is:
    its first load may have been killed behind its commit."""
    decisions = tuple(decisions)
    pending = [d.change for d in decisions if isinstance(d.change, ColumnAdded) and not d.applied]
    if not pending:
        return
    places, cursors = TableRenames.of(decisions), context.store.cursors.of(context.name)
    backfills: dict[Seen, str] = {}
    for change in pending:
        assert isinstance(change, ColumnAdded)
        table = accepted.get(places.before(change))
        at = cursors.get(table.ref) if table is not None else None
        if table is None or (at is not None and not at.cursor) or (at is None and isinstance(context.source, Streams)):
            continue
        backfills[identity(table, change.after)] = at.cursor if at is not None else NO_CURSOR
    context.store.watermarks.add(context.name, backfills)


def was_pending(context: SyncContext, table: Table | None, change: Change) -> bool:
    """Return whether a column was held while the cursor of its accepted table went on."""
    return (
        table is not None
        and isinstance(change, ColumnAdded)
        and identity(table, change.after) in context.store.watermarks.of(context.name)
    )


def noted_cursors(
    context: SyncContext, table: Table, backfills: Iterable[Backfill]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the noted cursors (JSON) that a load of the table has to begin at or before, and the numbers of those of
    the waiting `backfills` that ask for it."""
    waiting = [b for b in backfills if b.scope == "since" and b.table == table.ref]
    if not waiting:
        return (), ()
    cursors = context.store.watermarks.of(context.name)
    seen = [_seen(table, b) for b in waiting]
    return tuple(cursors.get(s, NO_CURSOR) if s else NO_CURSOR for s in seen), tuple(b.number for b in waiting)


def finish_backfills(context: SyncContext, backfill: Backfill) -> None:
    """Record that it is done: the column is read like every other from now on."""
    table = context.store.accepted.catalog(context.name).get(backfill.table)
    if backfill.scope == "since" and table is not None and (seen := _seen(table, backfill)):
        context.store.watermarks.forget(context.name, seen)


def _seen(table: Table, backfill: Backfill) -> Seen | None:
    column = table.by_name.get(backfill.column)
    return identity(table, column) if column else None
