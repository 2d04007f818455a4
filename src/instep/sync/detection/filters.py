"""Row filters: what the project file says of a table, whether the source can evaluate it, and what else it reads.

A few values of one column, read from the source in this process: never kept, shown or logged by who asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from instep.errors import Blocked, ProjectError, SetupError
from instep.lineage.needed import needs_sqlglot
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.planning.naming import quote
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.schema.selection.selection import is_on
from instep.sources.base import CursorRange, Filters, Snapshot
from instep.stage.spec import Chunk, ReadSession
from instep.sync.context import Ref, SyncContext


def filter_of(context: SyncContext, *tables: Table) -> str | None:
    """Return the filter that a table has under the first of its names of which the settings say one; None: under
    none."""
    filters = (context.settings(table).filter for table in tables)
    return next((text.strip() for text in filters if text is not None), None)


def where_of(context: SyncContext, *tables: Table) -> str:
    """Return the filter, "" for all rows."""
    return filter_of(context, *tables) or ""


def faulty_filters(context: SyncContext, snapshot: Snapshot, reads: Iterable[TableRead]) -> dict[Ref, str]:
    """Return the accepted tables whose filter cannot be used, and why in a sentence for people."""
    faults = ((read, fault_of(context, snapshot, read)) for read in reads if read.where)
    return {read.table.ref: str(error) for read, error in faults if error is not None}


def fault_of(context: SyncContext, snapshot: Snapshot, read: TableRead) -> ProjectError | None:
    if not isinstance(snapshot, Filters):
        return ProjectError(
            f"table {read.table.path} has a filter, and sources of the type {context.source.kind} have none",
            hint="take `filter` out of its settings",
        )
    why = _text_fault(snapshot, read) or snapshot.filter_error(read)
    if not why:
        return None
    return ProjectError(
        f"the filter of table {read.table.path} cannot be used: {why.strip()}",
        hint=f"correct it in instep.yml: a condition over columns of {read.source.path}, as its source writes SQL",
    )


def _text_fault(snapshot: Filters, read: TableRead) -> str:
    try:
        with needs_sqlglot():
            from instep.lineage.parse import filter_error
    except SetupError as error:
        return f"{error.message} ({error.hint})"
    columns = [c.name for c in read.source.columns] if snapshot.dialect == "sqlite" else []
    return filter_error(read.where, snapshot.dialect, columns)


def planned_faults(context: SyncContext, source: Catalog) -> Iterator[str]:
    """Yield the tables that a sync would refuse because of their filter. Opens a snapshot if some table has one."""
    on = (t for t in source.tables if is_on(context.selection, t)[0])
    reads = [r for t in on if (r := TableRead(t, t, (), where_of(context, t))).where]
    if reads:
        with context.source.snapshot() as snapshot:
            yield from faulty_filters(context, snapshot, reads).values()


def lost_filter(read: TableRead, path: str) -> Blocked:
    """Return the refusal to read a table without its filter because it has been renamed."""
    now = read.table.path
    return Blocked(
        f"table {now} was read by a filter that instep.yml gives to {path}, which is its former name",
        hint=f'name it {now} there; tables: {{"{now}": {{filter: ""}}}} reads all of its rows',
    )


def alone(table: Table, column: Column, where: str = "") -> TableRead:
    """Read only this column of a source table."""
    return TableRead(table, table, (ColumnRead(column, column),), where)


def values(
    context: SyncContext, snapshot: Snapshot, session: ReadSession, table: Table, column: Column, most: int
) -> Iterator[pa.Array]:
    """Yield up to `most` values that are not NULL, from the first and the last chunk: half of them from each, if
    there are two."""
    read = alone(table, column, where_of(context, table))
    chunks = sorted(snapshot.chunks(read, f"{table.path}.{column.name}", CursorRange()), key=_number)
    ends = chunks[:1] + chunks[1:][-1:]
    for place, chunk in enumerate(ends):
        left = most // len(ends) if place else most - most // len(ends) * (len(ends) - 1)
        for batch in session.read(_limited(context, chunk, column, left)):
            present = batch.column(0).drop_null()[:left]
            left -= len(present)
            yield present
            if not left:
                break


def _number(chunk: Chunk) -> int:
    return chunk.number


def _limited(context: SyncContext, chunk: Chunk, column: Column, most: int) -> Chunk:
    """Return a chunk whose SQL stops by itself; the column keeps the name by which readers know its type."""
    if not chunk.query.startswith("SELECT "):
        return chunk
    label = quote(str(column.type), "mysql" if context.source.kind in ("mysql", "mariadb") else "ansi")
    query = f"WITH s(v) AS ({chunk.query}) SELECT v AS {label} FROM s WHERE v IS NOT NULL LIMIT {most:d}"  # noqa: S608
    return replace(chunk, query=query)
