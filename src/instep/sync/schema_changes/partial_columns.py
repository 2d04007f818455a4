"""New columns whose old rows stay NULL: said plainly before and after, because a cursor does not move for them."""

from __future__ import annotations

from instep.errors import ProjectError
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.kinds import ColumnAdded
from instep.sync.context import SyncContext
from instep.sync.detection.detect import DetectionResult
from instep.sync.detection.swapped import comes_back, swap_notes
from instep.sync.detection.table_renames import TableRenames
from instep.sync.schema_changes.backfill_plan import blocker_of, why_whole
from instep.sync.schema_changes.selection_change import reselected_notes
from instep.sync.table_mode import choose


def partial_columns(context: SyncContext, detection: DetectionResult, accepted: Catalog) -> tuple[str, ...]:
    """Return one sentence a column that is added to a table with a cursor and not backfilled by policy, or that cannot
    be filled by itself as policy asks."""
    if detection.version == 0:
        return ()
    found, places = [], TableRenames.of(detection.decisions)
    for decision in detection.applied:
        change = decision.change
        if not isinstance(change, ColumnAdded) or decision.modifiers.backfill == "table":
            continue
        table = accepted.get(places.after(change))
        if table is None:
            continue
        path = f"{table.path}.{change.after.name}"
        if comes_back(detection.accepted.get(places.before(change)), change, detection.decisions):
            found.append(f"{path}: it comes back with old values, so a sync reads the whole table")
        elif decision.modifiers.backfill == "column":
            if why := why_whole(context, table, change.after.name):
                found.append(f"{path}: {why}, so a sync reads the whole table for it")
            elif why := blocker_of(context, table):
                found.append(f"{path}: rows loaded before are not filled at once: {why}")
        elif _partial(context, table):
            option = _option(context, table, change.after.name)
            found.append(
                f"{path}: rows that do not change keep NULL in it until `instep backfill {table.path}{option}`"
            )
    return (*found, *swap_notes(context, detection, accepted), *reselected_notes(context, detection))


def _option(context: SyncContext, table: Table, column: str) -> str:
    return "" if why_whole(context, table, column) else f" --column {column}"


def _partial(context: SyncContext, table: Table) -> bool:
    try:
        return choose(table, context.settings(table)).partial
    except ProjectError:
        return False
