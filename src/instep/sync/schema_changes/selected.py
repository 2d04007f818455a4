"""Reads of a run: the accepted tables that are switched on, each column from where the source has it today."""

from __future__ import annotations

from dataclasses import replace

from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import TableRemoved, TableReplaced
from instep.schema.planning.projection import ColumnRead, SkippedTable, TableRead, reads
from instep.schema.selection.overrides import SelectionSides, sides, with_switches
from instep.schema.selection.selection import Selection, column_is_on, hashed, is_on
from instep.store.store import Store
from instep.sync.context import SyncContext
from instep.sync.detection.detect import DetectionResult
from instep.sync.detection.filters import where_of
from instep.sync.detection.table_renames import TableRenames


def chosen(selection: Selection, store: Store, connection: str) -> Selection:
    """Return `selection` with people's switches applied, under the names of the last detection."""
    if not (switches := store.switches.of(connection)):
        return selection
    seen, accepted = store.discoveries.get(connection), store.accepted.catalog(connection)
    source, identity = (seen.catalog, seen.identity) if seen else (Catalog(), "")
    return with_switches(with_switches(selection, switches, accepted, identity), switches, source, identity)


def sides_now(context: SyncContext) -> SelectionSides:
    """Return the current selection: people may have switched something since the run began."""
    if not (switches := context.store.switches.of(context.name)):
        return SelectionSides(context.project_selection, context.project_selection)
    seen = context.store.discoveries.get(context.name)
    source, identity = (seen.catalog, seen.identity) if seen else (Catalog(), "")
    return sides(context.project_selection, switches, source, context.store.accepted.catalog(context.name), identity)


def selected_reads(
    context: SyncContext, detection: DetectionResult
) -> tuple[tuple[TableRead, ...], tuple[SkippedTable, ...]]:
    """Return the reads, and why accepted tables cannot be read. A deselected column has no source, so that its old
    values stay; a table that is deselected under its source name is left out."""
    accepted = context.store.accepted.catalog(context.name)
    seen, switches = detection.discovery, context.store.switches.of(context.name)
    chosen = sides(context.project_selection, switches, seen.catalog, accepted, seen.identity)
    on = Catalog.of(t for t in accepted.tables if is_on(chosen.before, t)[0])
    readable, missing = reads(on, detection.discovery.catalog, paused=detection.replaced)
    now = (replace(r, where=where_of(context, r.table, r.source)) for r in readable if is_on(chosen.now, r.source)[0])
    return tuple(_switched(chosen, r) for r in now), tuple(_why(m, detection) for m in missing)


def _why(missing: SkippedTable, detection: DetectionResult) -> SkippedTable:
    if denied := detection.denied.get(missing.table.ref):
        return replace(missing, why=denied)
    places = TableRenames.of(detection.decisions)
    pending = (d for d in detection.decisions if isinstance(d.change, TableRemoved | TableReplaced) and not d.applied)
    mine = next((d for d in pending if places.before(d.change) == missing.table.ref), None)
    return replace(missing, why=f"{missing.why}: {detection.state_of(mine)}") if mine else missing


def _switched(chosen: SelectionSides, read: TableRead) -> TableRead:
    if not chosen.now.covers_columns:
        return read
    columns = tuple(_column(chosen, read, c) for c in read.columns)
    off = {c.column.name for c in columns if c.source is None}
    cursor = None if read.table.cursor in off else read.table.cursor
    return replace(read, table=replace(read.table, cursor=cursor), columns=columns)


def _column(chosen: SelectionSides, read: TableRead, column_read: ColumnRead) -> ColumnRead:
    """Return the column as deselected or hashed if it is so under its accepted name or under the source's."""
    if column_read.source is None:
        return column_read
    names = ((chosen.before, read.table, column_read.column.name), (chosen.now, read.source, column_read.source.name))
    if not all(_is_on(selection, table, column_read, name) for selection, table, name in names):
        return replace(column_read, source=None, off=True)
    return replace(column_read, hashed=any(hashed(s, table.ref, name) for s, table, name in names))


def _is_on(selection: Selection, table: Table, column_read: ColumnRead, name: str) -> bool:
    return column_is_on(selection, table, replace(column_read.column, name=name))[0]
