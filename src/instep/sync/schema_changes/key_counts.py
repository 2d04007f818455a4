"""Counts of rows that share a key or have NULL in it: at the source, and in the accepted rows.

Tasks read the key's columns alone, on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from instep.errors import Blocked, argument
from instep.schema.catalog.catalog import Table
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import CursorRange
from instep.stage.fold import Scan
from instep.stage.key_hashes import KeyCounter, count_keys
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.filters import where_of
from instep.sync.table_mode import mode_name


@dataclass(frozen=True)
class RowCounts:
    """Duplicates and NULLs of a key on one side."""

    rows: int = 0
    duplicates: int = 0
    """Rows that would be lost because another one has their key."""
    nulls: int = 0
    """Rows with NULL in it."""
    why_not: str = ""
    """Reason why nothing was counted."""

    @property
    def unique(self) -> bool:
        return not (self.duplicates or self.nulls or self.why_not)

    def __str__(self) -> str:
        if self.why_not:
            return f"not counted: {self.why_not}"
        return f"{self.rows:,} rows, {self.duplicates:,} duplicates, {self.nulls:,} with NULL"


@dataclass(frozen=True)
class KeyCount:
    """The same key on both sides. The destination's rows include those that are marked as deleted: they would meet
    the others by key."""

    key: tuple[str, ...]
    source: RowCounts
    destination: RowCounts

    @property
    def lines(self) -> tuple[str, ...]:
        return f"at the source: {self.source}", f"at the destination: {self.destination}"


def count_key(
    context: SyncContext, table: Table, source: Table, key: Sequence[str], names: Sequence[str], engine: KeyCounter
) -> KeyCount:
    """Count duplicates and NULLs of a key at both sides; `key` by accepted names, `names` the same columns at the
    source. Raises InstepError if a side cannot be read."""
    at_source = count_source(context, source, names, engine)
    return KeyCount(tuple(key), at_source, count_destination(context, table, key, engine))


def count_source(context: SyncContext, source: Table, key: Sequence[str], engine: KeyCounter) -> RowCounts:
    """Read the key's columns in one snapshot."""
    read = TableRead(source, source, tuple(ColumnRead(c, c) for c in source.columns), where_of(context, source))
    with context.source.snapshot() as snapshot:
        chunks = snapshot.chunks(read, "key", CursorRange(), columns=tuple(key))
        return _count(engine, Scan(snapshot.reader, chunks))


def count_destination(context: SyncContext, table: Table, key: Sequence[str], engine: KeyCounter) -> RowCounts:
    """Count at the destination; return nothing for a table without rows."""
    ref = destination_ref(table, context.naming)
    if context.destination.schema.state(ref) is None:
        return RowCounts()
    if absent := [name for name in key if name not in table.by_name]:
        return RowCounts(why_not=f"column {absent[0]} is not accepted yet")
    names = [table.by_name[name].alias or name for name in key]
    existing = context.destination.schema.inspect([ref]).get(ref)
    if gone := [name for name in names if existing is None or name not in existing.by_name]:
        return RowCounts(why_not=f"column {gone[0]} is not at the destination")
    write = context.destination.write
    return _count(engine, write.scan(ref, names) or write.read(ref, names))


def appended_twice(
    context: SyncContext, reads: Sequence[TableRead], engine: KeyCounter, *, overwrites: bool
) -> dict[Ref, str]:
    """Return the tables that were appended to and are to be merged by key now, whose key several rows have: those that
    no longer change would stay beside the newest one. `overwrites`: their rows are replaced, but for versions."""
    before, blocked = context.store.loaded.filters(context.name, [r.table.ref for r in reads]), dict[Ref, str]()
    for read in reads:
        table, rules = read.table, before.get(read.table.ref)
        if rules is None or not rules.appended or mode_name(table, context.settings(table)) not in ("upsert", "cdc"):
            continue
        if overwrites and not table.history:
            continue
        counts = count_destination(context, table, table.key, engine)
        if counts.duplicates:
            rebuild = f"`instep table set-key {argument(table.path)} {argument(','.join(table.key))} --rebuild`"
            error = Blocked(
                f"it was appended to, and {counts.duplicates:,} of its rows are earlier versions of others",
                hint=f"`instep backfill {argument(table.path)}` reloads it; {rebuild} also keeps the rows in a copy",
            )
            blocked[table.ref] = str(error)
    return blocked


def _count(engine: KeyCounter, rows: Scan | Iterable[pa.RecordBatch]) -> RowCounts:
    key_totals = count_keys(engine, rows)
    return RowCounts(key_totals.rows, key_totals.duplicates, key_totals.nulls)
