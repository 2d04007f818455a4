"""Tables at the destination of a connection: from metadata, the store and the last detection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from instep.destinations.base import TableSize
from instep.errors import InstepError, ProjectError, SchemaError
from instep.model import Pause, Review, Run, TableRun
from instep.operations.everyday.tables import (
    ColumnHandling,
    LastTableRun,
    TableColumn,
    TablePreview,
    TablesRequest,
    TablesResult,
    TableSummary,
)
from instep.operations.spec import DirectWork
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnRenamed,
    TableAdded,
    TableRenamed,
    TableReplaced,
    change_from_dict,
)
from instep.schema.changes.diff import pair_columns
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.projection import pair_tables
from instep.schema.selection.overrides import SelectionSides, sides
from instep.schema.selection.selection import column_is_on, hashed, is_on
from instep.sync.context import Ref, SyncContext
from instep.sync.quarantine.quarantine import quarantined_counts
from instep.sync.query import first_rows
from instep.sync.table_mode import choose


@dataclass(frozen=True)
class SchemaSides:
    """The accepted tables, and the source as of the last detection."""

    accepted: Catalog
    source: Catalog
    pairs: Mapping[Ref, Table]
    """The source's table by the accepted one's reference."""
    selection: SelectionSides

    @property
    def new(self) -> Iterator[Table]:
        """Return the tables of the source that are selected, and not accepted."""
        paired = {table.ref for table in self.pairs.values()}
        return (t for t in self.source.tables if t.ref not in paired and is_on(self.selection.now, t)[0])


@dataclass(frozen=True)
class DestinationState:
    """State of the accepted tables at the destination, by their references there."""

    tables: Catalog
    sizes: Mapping[Ref, TableSize]
    foreign: Mapping[Ref, str]


@dataclass(frozen=True)
class TableRecords:
    """Records of the store on a connection's tables, by their accepted references."""

    last: Mapping[Ref, TableRun]
    runs: Mapping[str, Run]
    pauses: tuple[Pause, ...]
    backfills: Mapping[Ref, tuple[str, ...]]
    quarantined: Mapping[str, int] | None
    """Entries by path; None: they could not be looked at."""


class Tables(DirectWork):
    """The work of the operation `tables`."""

    def run(self, context: SyncContext, request: TablesRequest) -> TablesResult:
        """Describe all tables, or one with its columns and first rows; InstepError for a table that there is not."""
        schemas, notes = _schemas(context), list[str]()
        chosen = _chosen(context, schemas, request.table)
        with context.destination_open():
            at_destination = _at_destination(context, [t for t in chosen if t.alias])
            records = _records(context, _quarantined(context, request.table, notes))
            summaries = [_summary(context, schemas, at_destination, records, table) for table in chosen]
            columns = tuple(_columns(context, schemas, at_destination, chosen[0])) if request.table else ()
            preview = _preview(context, summaries[0], chosen[0], request.preview) if request.preview else None
        return TablesResult(context.name, tuple(summaries), columns, tuple(notes), preview)


def _schemas(context: SyncContext) -> SchemaSides:
    seen, accepted = context.store.discoveries.get(context.name), context.store.accepted.catalog(context.name)
    source, identity = (seen.catalog, seen.identity) if seen else (Catalog(), "")
    pairs = pair_tables(accepted.tables, source)
    selection = sides(context.project_selection, context.store.switches.of(context.name), source, accepted, identity)
    return SchemaSides(accepted, source, pairs, selection)


def _chosen(context: SyncContext, schemas: SchemaSides, path: str) -> list[Table]:
    """Return the tables that are asked for, by path: the accepted ones, and those that are selected and are not."""
    tables = {table.path: table for table in (*schemas.new, *schemas.accepted.tables)}
    return [context.table(path, tables.values())] if path else [tables[name] for name in sorted(tables)]


def _at_destination(context: SyncContext, tables: Iterable[Table]) -> DestinationState:
    refs = [destination_ref(table, context.naming) for table in tables]
    foreign = context.destination.schema.foreign(refs)
    own = [ref for ref in refs if ref not in foreign]
    return DestinationState(context.destination.schema.inspect(own), context.destination.schema.sizes(own), foreign)


def _quarantined(context: SyncContext, path: str, notes: list[str]) -> Mapping[str, int] | None:
    """Return how many entries each table holds, by path; what cannot be looked at is noted."""
    if not context.store.runs.has_quarantined(context.name):
        return {}
    only = {path} & {table.path for table in context.store.accepted.catalog(context.name).tables}
    if path and not only:
        return {}
    try:
        return quarantined_counts(context, only)
    except InstepError as error:
        notes.append(f"the quarantine of {context.name} could not be looked at: {error.message}")
        return None


def _records(context: SyncContext, quarantined: Mapping[str, int] | None) -> TableRecords:
    store, last = context.store, context.store.runs.latest_tables(context.name)
    runs = store.runs.get_many({backfill.run for backfill in last.values()})
    backfills: dict[Ref, tuple[str, ...]] = {}
    for backfill in store.backfills.waiting(context.name):
        backfills[backfill.table] = (*backfills.get(backfill.table, ()), backfill.column or "*")
    return TableRecords(last, runs, tuple(store.pauses.active(context.name)), backfills, quarantined)


def _summary(
    context: SyncContext, schemas: SchemaSides, stored: DestinationState, records: TableRecords, table: Table
) -> TableSummary:
    ref = destination_ref(table, context.naming) if table.alias else None
    existing, size = (stored.tables.get(ref), stored.sizes.get(ref, TableSize())) if ref else (None, TableSize())
    source = schemas.pairs.get(table.ref) if table.alias else table
    mode, trouble = _mode(context, table)
    last = records.last.get(table.ref)
    failed = last.error if last and last.status != "done" else ""
    return TableSummary(
        table=table.path,
        source=source.path if source and not table.retained else None,
        destination=".".join(ref) if ref else None,
        mode=mode,
        history=table.history,
        key=table.key,
        rows=size.rows,
        bytes=size.bytes,
        columns=sum(not _is_system(context, column) for column in existing.columns) if existing else 0,
        last_run=_last(records, last),
        quarantined=None if records.quarantined is None else records.quarantined.get(table.path, 0),
        paused=next((p.reason for p in records.pauses if p.table in (None, table.ref)), None),
        error=failed or trouble or None,
        backfills=records.backfills.get(table.ref, ()),
        note=stored.foreign.get(ref, "") if ref and ref in stored.foreign else _note(table, size),
    )


def _mode(context: SyncContext, table: Table) -> tuple[str | None, str]:
    """Return how a table is loaded, and why its settings do not fit; nothing of one that is not read."""
    if table.retained or not table.alias:
        return None, ""
    try:
        return choose(table, context.settings(table)).mode, ""
    except ProjectError as error:
        return None, str(error)


def _note(table: Table, size: TableSize) -> str:
    if not table.alias:
        return "selected, not accepted: run `instep plan` to see what a sync would do"
    if table.retained:
        return "retained after its removal at the source; no longer read"
    return "" if size.rows is not None else "not loaded yet: `instep sync` loads it"


def _last(records: TableRecords, last: TableRun | None) -> LastTableRun | None:
    if last is None:
        return None
    run = records.runs.get(last.run)
    return LastTableRun(last.run, run.kind if run else "", last.status, (run.ended or run.started) if run else None)


def _is_system(context: SyncContext, column: Column) -> bool:
    return context.naming.fold(column.name) in context.naming.system


def _columns(
    context: SyncContext, schemas: SchemaSides, stored: DestinationState, table: Table
) -> Iterator[TableColumn]:
    """Yield the accepted columns in order, then those of the source alone, then those of the destination alone."""
    existing = stored.tables.get(destination_ref(table, context.naming)) if table.alias else None
    accepted = table.columns if table.alias else ()
    source = schemas.pairs.get(table.ref) if table.alias else table
    fed = {old.name: new for old, new in pair_columns(table, source).same} if accepted and source else {}
    since, at_destination = _first_seen(context, table), dict(existing.by_name) if existing else {}
    for column in accepted:
        from_source, to = fed.get(column.name), at_destination.pop(column.alias or column.name, None)
        yield _column(column, from_source, to, _status(schemas, table, column, from_source), since.get(column.name))
    fed_names = {column.name for column in fed.values()}
    for column in (c for c in (source.columns if source else ()) if c.name not in fed_names):
        on = column_is_on(schemas.selection.now, source or table, column)[0]
        yield _column(column, column, None, "new" if on else "off")
    for column in at_destination.values():
        if not _is_system(context, column):
            yield _column(column, None, column, "other")


def _status(schemas: SchemaSides, table: Table, column: Column, source: Column | None) -> ColumnHandling:
    before = schemas.selection.before
    if column.retained:
        return "retained"
    if not column_is_on(before, table, column)[0]:
        return "off"
    if source is None and table.ref in schemas.pairs:
        return "missing"
    return "hashed" if hashed(before, table.ref, column.name) else "read"


def _column(
    column: Column,
    source: Column | None,
    existing: Column | None,
    status: ColumnHandling,
    since: datetime | None = None,
) -> TableColumn:
    return TableColumn(
        column=column.name,
        destination=existing.name if existing else None,
        source_type=(source.native or str(source.type)) if source else None,
        destination_type=str(existing.type) if existing else None,
        nullable=(existing or source or column).nullable,
        key=column.key,
        status=status,
        since=since,
    )


def _first_seen(context: SyncContext, table: Table) -> Mapping[str, datetime]:
    """Return when each accepted column was first seen: with the change that brought it, under any name, or with its
    table."""
    history, seen = context.store.accepted.history(context.name), dict[Ref, dict[str, datetime]]()
    for review in reversed(context.store.reviews.find(context.name, ("applied",)) if history else ()):
        columns = seen.setdefault(review.table, {})
        match change := _change(review):
            case TableAdded() | TableReplaced():
                seen[change.after.ref] = {"": review.first_seen}
            case TableRenamed():
                seen[change.after.ref] = seen.pop(change.before.ref, {})
            case ColumnAdded():
                columns[change.after.name] = review.first_seen
            case ColumnRenamed() if change.before.name in columns:
                columns[change.after.name] = columns.pop(change.before.name)
    own = seen.get(table.ref, {})
    first = own.get("", history[-1].at) if history else None
    return {c.name: at for c in table.columns if (at := own.get(c.name, first)) is not None}


def _change(review: Review) -> Change | None:
    """Return the recorded change; None for a kind that this version does not know."""
    with suppress(SchemaError):
        return change_from_dict(review.change)
    return None


def _preview(context: SyncContext, summary: TableSummary, table: Table, limit: int) -> TablePreview:
    if summary.rows is None:
        raise InstepError(
            f"table {summary.table} has no rows to show: {summary.note or 'it was never loaded'}",
            hint="`instep sync` loads it",
        )
    answer, rows = first_rows(context.destination, destination_ref(table, context.naming), limit)
    return TablePreview(tuple(answer.columns), tuple(answer.rows), rows)
