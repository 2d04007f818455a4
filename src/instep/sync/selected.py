"""What a run reads: the accepted tables that are switched on, each column from where the source has it today."""

from __future__ import annotations

from dataclasses import replace

from instep.schema.read import ColumnRead, Missing, TableRead, reads
from instep.schema.selection import Selection, column_is_on, hashed, is_on
from instep.schema.table import Catalog, Table
from instep.sync.detect import Detection
from instep.sync.pipe import Pipe


def selected_reads(pipe: Pipe, detection: Detection) -> tuple[tuple[TableRead, ...], tuple[Missing, ...]]:
    """The reads, and the accepted tables that cannot be read with why. A column that is switched off has no source,
    so that its old values stay; a table that is off under its name at the source is left out."""
    accepted = pipe.store.accepted.catalog(pipe.name)
    on = Catalog.of(t for t in accepted.tables if is_on(pipe.selection, t)[0])
    found, missing = reads(on, detection.discovery.catalog, held=detection.replaced)
    now = (r for r in found if is_on(pipe.selection, r.source)[0])
    return tuple(_switched(pipe.selection, r) for r in now), tuple(_why(m, detection) for m in missing)


def _why(missing: Missing, detection: Detection) -> Missing:
    denied = detection.denied.get(missing.table.ref)
    return replace(missing, why=denied) if denied else missing


def _switched(selection: Selection, read: TableRead) -> TableRead:
    if not (selection.exclude_columns or selection.off or selection.hashed):
        return read
    columns = tuple(_column(selection, read, c) for c in read.columns)
    off = {c.column.name for c in columns if c.source is None}
    cursor = None if read.table.cursor in off else read.table.cursor
    return TableRead(replace(read.table, cursor=cursor), read.source, columns)


def _column(selection: Selection, read: TableRead, one: ColumnRead) -> ColumnRead:
    """A column is off or hashed if it is so under its accepted name or under the source's."""
    if one.source is None:
        return one
    names = ((read.table, one.column.name), (read.source, one.source.name))
    if not all(_is_on(selection, table, one, name) for table, name in names):
        return replace(one, source=None)
    return replace(one, hashed=any(hashed(selection, table.ref, name) for table, name in names))


def _is_on(selection: Selection, table: Table, one: ColumnRead, name: str) -> bool:
    return column_is_on(selection, table, replace(one.column, name=name))[0]
