"""How many rows share a key or have NULL in it: at the source, and in the rows that were accepted.

Both sides are counted by DuckDB over the key's columns alone, as the destination compares values: a collation of
the source that takes `a` and `A` for one says nothing there. No Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from instep.schema.catalog.catalog import Table
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import CursorRange
from instep.stage.duckdb_memory import in_duckdb
from instep.stage.inline import giving_way
from instep.sync.context import SyncContext
from instep.sync.detection.filters import where_of


@dataclass(frozen=True)
class RowCounts:
    """`duplicates`: rows that would be lost because another one has their key. `nulls`: rows with NULL in it.
    `why_not` says why nothing was counted."""

    rows: int = 0
    duplicates: int = 0
    nulls: int = 0
    why_not: str = ""

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


def count_key(context: SyncContext, table: Table, source: Table, key: Sequence[str], names: Sequence[str]) -> KeyCount:
    """`key` by accepted names, `names` the same columns at the source. Raises InstepError if a side cannot be read."""
    return KeyCount(tuple(key), count_source(context, source, names), count_destination(context, table, key))


def count_source(context: SyncContext, source: Table, key: Sequence[str]) -> RowCounts:
    """Read the key's columns in one snapshot."""
    read = TableRead(source, source, tuple(ColumnRead(c, c) for c in source.columns), where_of(context, source))
    with context.source.snapshot() as snapshot, giving_way(snapshot.reader) as session:
        chunks = snapshot.chunks(read, "key", CursorRange(), columns=tuple(key))
        return _count(batch for chunk in chunks for batch in session.read(chunk))


def count_destination(context: SyncContext, table: Table, key: Sequence[str]) -> RowCounts:
    """Count at the destination; return nothing for a table without rows."""
    ref = destination_ref(table, context.naming)
    if context.destination.schema.state(ref) is None:
        return RowCounts()
    if absent := [name for name in key if name not in table.by_name]:
        return RowCounts(why_not=f"column {absent[0]} is not accepted yet")
    names = [table.by_name[name].alias or name for name in key]
    there = context.destination.schema.inspect([ref]).get(ref)
    if gone := [name for name in names if there is None or name not in there.by_name]:
        return RowCounts(why_not=f"column {gone[0]} is not at the destination")
    return _count(context.destination.write.read(ref, names))


def _count(batches: Iterable[pa.RecordBatch]) -> RowCounts:
    rest = iter(batches)
    first = next(rest, None)
    if first is None or not first.num_columns:
        return RowCounts()
    names = [f"k{number}" for number in range(first.num_columns)]
    schema = _plain(first, names).schema

    def plain() -> Iterator[pa.RecordBatch]:
        yield _plain(first, names)
        for batch in rest:
            yield _plain(batch, names)

    absent, keys = " or ".join(f"{n} is null" for n in names), ", ".join(names)
    with in_duckdb() as connection:
        connection.register("side", pa.RecordBatchReader.from_batches(schema, plain()))
        [found] = connection.execute(
            "select coalesce(sum(n), 0), coalesce(sum(n - 1) filter (not absent), 0), "  # noqa: S608 - our own names
            "coalesce(sum(n) filter (absent), 0) from "
            f"(select count(*) as n, {absent} as absent from side group by {keys})"
        ).fetchall()
    rows, duplicates, nulls = map(int, found)
    return RowCounts(rows, duplicates, nulls)


def _plain(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """By place; an extension type by what it is stored as."""
    columns = [c.storage if isinstance(c, pa.ExtensionArray) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=list(names))
