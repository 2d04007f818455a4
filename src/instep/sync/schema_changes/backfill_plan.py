"""Planning of backfills: which columns are filled, which tables have to be read whole instead, and the cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from instep.destinations.base import FillSize
from instep.errors import InstepError, argument
from instep.operations.queries.work import EstimateBackfill, EstimatedBackfill, FillEstimate
from instep.operations.spec import QueryWork
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import Boolean, DataType, Date, Decimal, Float, Int, Time, Timestamp, TimestampTz, Uuid
from instep.schema.changes.describe import ColumnRemoved, ColumnRenamed
from instep.schema.maintenance import waits
from instep.schema.planning.naming import destination_ref
from instep.schema.policy.policy import Decision
from instep.sources.stream import Streams
from instep.store.catalogs.backfills import Backfill
from instep.suggest import did_you_mean, unknown_table
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.table_renames import TableRenames
from instep.sync.table_mode import mode_name

COLUMNS = 25
"""Columns of one table that are filled together: the numbers of their backfills stand in a folder's name."""
TEXT_BYTES = 24


@dataclass(frozen=True)
class PendingBackfill:
    """Columns of one accepted table that wait to be filled, with the backfills that ask for them."""

    table: Table
    columns: tuple[Column, ...]
    backfills: tuple[Backfill, ...]

    @property
    def numbers(self) -> dict[str, int]:
        """The number of the backfill by destination column."""
        return {c.alias or c.name: b.number for c, b in zip(self.columns, self.backfills, strict=True)}

    @property
    def names(self) -> str:
        return ", ".join(c.name for c in self.columns)


def why_whole(context: SyncContext, table: Table, column: str) -> str:
    """Return why a column of a table cannot be filled by itself, so that the whole table is read; "" if it can."""
    if isinstance(context.source, Streams):
        return "its source sends whole rows"
    if not table.key:
        return "it has no key"
    if column in table.key:
        return "the column is part of its key"
    if table.history:
        return "it keeps its history, and only current versions are to get values"
    if mode_name(table, context.settings(table)) == "append":
        return "its rows are only appended"
    return "rows have values in it from before it was left out" if is_outdated(context, table.ref, column) else ""


def is_outdated(context: SyncContext, ref: Ref, column: str) -> bool:
    """Return whether rows that have not changed have values in a column that were read before it was left out: these
    cannot be told from today's, and filling NULLs is not enough."""
    loaded = context.store.loaded.of(context.name, [ref]).get(ref, ())
    return any(c.outdated or (not c.read and c.type) for c in loaded if c.name == column)


def whole_tables(context: SyncContext) -> dict[Ref, str]:
    """Return the accepted tables that a backfill wants whole, and why if one wanted less."""
    accepted = context.store.accepted.catalog(context.name)
    reasons: dict[Ref, str] = {}
    for pending in context.store.backfills.waiting(context.name):
        table = accepted.get(pending.table)
        if pending.scope == "table":
            reasons.setdefault(pending.table, "")
        elif pending.scope == "column" and table and (why := why_whole(context, table, pending.column)):
            reasons[pending.table] = why
    return reasons


def waiting_notes(context: SyncContext, accepted: Catalog) -> Iterator[str]:
    """Yield one sentence for each backfill that the next sync does."""
    for pending in context.store.backfills.waiting(context.name):
        table = accepted.get(pending.table)
        if table is None or table.retained:
            continue
        column = f"{table.path}.{pending.column}"
        if not pending.column:
            yield f"{table.path}: a sync reads the whole table again: {pending.why}"
        elif pending.scope == "column" and (whole := why_whole(context, table, pending.column)):
            yield f"{column}: a sync reads the whole table again to fill it, because {whole}: {pending.why}"
        else:
            yield f"{column}: a sync fills it in rows that were loaded before: {pending.why}"


def pending_backfills(context: SyncContext, accepted: Catalog) -> Iterator[PendingBackfill]:
    """Return requested backfills by table, oldest first, without those that cannot be filled or wait for the whole
    table."""
    whole = whole_tables(context)
    waiting: dict[Ref, list[Backfill]] = {}
    for pending in context.store.backfills.waiting(context.name):
        if pending.scope == "column" and pending.table not in whole:
            waiting.setdefault(pending.table, []).append(pending)
    for ref, backfills in waiting.items():
        if (table := accepted.get(ref)) is None:
            continue
        live = {c.name: c for c in table.live}
        fitting = [b for b in backfills if b.column in live]
        for start in range(0, len(fitting), COLUMNS):
            some = tuple(fitting[start : start + COLUMNS])
            yield PendingBackfill(table, tuple(live[b.column] for b in some), some)


def unneeded_backfills(context: SyncContext, accepted: Catalog) -> list[Backfill]:
    """Return backfills of columns that are no longer accepted, or retained without being read."""
    waiting = [b for b in context.store.backfills.waiting(context.name) if b.scope in ("column", "since")]
    tables = ((b, accepted.get(b.table)) for b in waiting)
    return [b for b, table in tables if table is None or b.column not in {c.name for c in table.live}]


def follow_columns(context: SyncContext, applied: Iterable[Decision], places: TableRenames) -> None:
    """Move backfills of renamed columns, and their load records, to the new names; all at once, because names may be
    swapped. Delete the load records of removed columns."""
    applied = tuple(applied)
    if gone := {(places.after(d.change), d.change.before.name) for d in applied if isinstance(d.change, ColumnRemoved)}:
        context.store.loaded.forget(context.name, gone)
    moves = {
        (places.after(d.change), d.change.before.name): d.change.after.name
        for d in applied
        if isinstance(d.change, ColumnRenamed)
    }
    if moves:
        context.store.loaded.rename(context.name, moves)
        context.store.backfills.rename(context.name, moves)
    waiting = [b for b in context.store.backfills.waiting(context.name) if (b.table, b.column) in moves]
    for b in waiting:
        context.store.backfills.cancel(b.number)
    for b in waiting:
        column = moves[b.table, b.column]
        context.store.backfills.request(context.name, b.table, column=column, why=b.why, change=b.change, scope=b.scope)


def estimate(context: SyncContext, table: Table, columns: Mapping[str, int], rows: int, bytes: int) -> FillEstimate:
    """Estimate a fill; `columns` has the number of their backfill by accepted name, 0 for an unrecorded one. `rows`
    and `bytes` of the table are the source's."""
    size = fill_size(context, table, {table.by_name[name].alias or name: number for name, number in columns.items()})
    whole = estimate_new(table, tuple(columns), rows, bytes)
    return replace(whole, files=size.files, of=size.of, rewritten=size.bytes, why_not=size.why_not)


def estimate_new(table: Table, columns: Sequence[str], rows: int, bytes: int) -> FillEstimate:
    """Return the source's side of it. Without bytes, rows of the usual width are assumed."""
    share = weight([table.by_name[n] for n in (*table.key, *columns)]) if columns else weight(table.live)
    read = int(bytes * share / max(weight(table.live), 1)) if bytes else rows * share
    return FillEstimate(table.path, tuple(columns), rows, read, 0, 0, 0, bytes > 0)


def estimate_whole(context: SyncContext, table: Table, rows: int, bytes: int) -> FillEstimate:
    """Estimate a full read of the table."""
    state = context.destination.schema.state(destination_ref(table, context.naming))
    files, size = (state.files, state.bytes) if state else (0, 0)
    return replace(estimate_new(table, (), rows, bytes), files=files, of=files, rewritten=size)


def fill_size(context: SyncContext, table: Table, named: Mapping[str, int]) -> FillSize:
    """Return the size of a fill; `named` is by destination column. A table that does not exist yet has nothing to
    fill."""
    try:
        return context.destination.write.fill_size(destination_ref(table, context.naming), named)
    except InstepError as error:
        return FillSize(why_not=error.message)


def weight(columns: Iterable[Column]) -> int:
    """Return about how many bytes a row of these columns has."""
    return sum(_bytes(c.type) for c in columns)


def _bytes(kind: DataType) -> int:
    match kind:
        case Boolean():
            return 1
        case Int(bits) | Float(bits):
            return bits // 8
        case Date():
            return 4
        case Time() | Timestamp() | TimestampTz() | Decimal():
            return 8
        case Uuid():
            return 16
    return TEXT_BYTES


def blocker_of(context: SyncContext, table: Table) -> str:
    """Return what blocks a fill of all of a table's files now: its window or its budget; "" if nothing does."""
    limits = context.backfill_limits
    if not limits.max_bytes:
        return waits(limits, datetime.now(UTC))
    state = context.destination.schema.state(destination_ref(table, context.naming))
    return waits(limits, datetime.now(UTC), state.bytes if state else 0)


def check_columns(context: SyncContext, path: str, columns: Collection[str]) -> tuple[Table, tuple[str, ...]]:
    """Return the accepted table and columns that a person names; InstepError for what is not there or cannot be filled,
    unless the source is a stream: that sends the whole table again."""
    tables = {t.path: t for t in context.store.accepted.catalog(context.name).tables if not t.retained}
    if (table := tables.get(path)) is None:
        raise unknown_table(f"connection {context.name} syncs no table {path}", path, tables)
    live = [c.name for c in table.live]
    for name in columns:
        if name not in live:
            hint = did_you_mean(name, live, "sync first, if the column is new at the source")
            raise InstepError(f"table {path} has no accepted column {name}", hint=hint)
        if (why := why_whole(context, table, name)) and not isinstance(context.source, Streams):
            raise InstepError(
                f"column {path}.{name} cannot be filled by itself: {why}", hint=f"instep backfill {argument(path)}"
            )
    return table, tuple(dict.fromkeys(columns))


class BackfillEstimates(QueryWork):
    """The work of the query `estimate_backfill`."""

    def find(self, context: Any, query: EstimateBackfill) -> EstimatedBackfill:
        """Estimate the backfill of the table, or of its columns."""
        opened = context.open_connection(context.connection(query.connection))
        estimate, blocker = estimated(opened, query.table, query.column)
        return EstimatedBackfill(**vars(estimate), waits=blocker)


def estimated(context: SyncContext, path: str, columns: Collection[str]) -> tuple[FillEstimate, str]:
    """Return (the cost of filling columns of a table, or of reading it again without columns; what blocks it). From
    the last detection and the destination's metadata: neither the source nor a file is opened. Raises InstepError as
    `check_columns` does."""
    table, names = check_columns(context, path, columns)
    cached = context.store.discoveries.get(context.name)
    rows, size = cached.stats.get(table.ref, (0, 0)) if cached else (0, 0)
    if names and isinstance(context.source, Streams):
        why = why_whole(context, table, names[0])
        return replace(estimate_whole(context, table, rows, size), whole=why), ""
    if not names:
        return estimate_whole(context, table, rows, size), ""
    numbers = {b.column: b.number for b in context.store.backfills.waiting(context.name) if b.table == table.ref}
    fill = estimate(context, table, {n: numbers.get(n, 0) for n in names}, rows, size)
    return fill, waits(context.backfill_limits, datetime.now(UTC), fill.rewritten)
