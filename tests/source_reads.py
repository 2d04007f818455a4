"""Reading a table as a task does: discovered, chunked, read, and conformed to its own types."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from instep.schema.catalog.catalog import Table
from instep.schema.catalog.types import Binary, Boolean, DataType, Date, Decimal, Float, Int, Timestamp, TimestampTz
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import CursorRange, Snapshot, Source
from instep.stage.conform import Conformed, conform
from instep.stage.spec import Chunk, StageColumn, StageSpec, SystemColumns

EVERYTHING = CursorRange()


def find(source: Source, name: str) -> Table:
    """The only table of this name."""
    (table,) = [t for t in source.discover().catalog.tables if t.name == name]
    return table


def accept(table: Table) -> TableRead:
    return TableRead(table, table, tuple(ColumnRead(c, c) for c in table.columns))


def batches(snapshot: Snapshot, chunks: Sequence[Chunk]) -> list[pa.RecordBatch]:
    with pickle.loads(pickle.dumps(snapshot.reader)).open() as session:
        return [batch for chunk in chunks for batch in session.read(chunk)]


def values(source: Source, name: str) -> dict[str, list[Any]]:
    """What the reader yields, by column."""
    read = accept(find(source, name))
    with source.snapshot() as snapshot:
        found = batches(snapshot, snapshot.chunks(read, name, EVERYTHING))
    columns = [c.column.name for c in read.columns]
    return {name: [v for b in found for v in b.column(at).to_pylist()] for at, name in enumerate(columns)}


def staged(source: Source, name: str) -> tuple[list[dict[str, Any]], dict[tuple[str, str], str | None]]:
    """(the rows that land, the originals of invalid values by key and column)."""
    read = accept(find(source, name))
    with source.snapshot() as snapshot:
        spec = spec_of(read, snapshot)
        parts = [conform(b, spec) for b in batches(snapshot, snapshot.chunks(read, name, EVERYTHING))]
    return [row for part in parts for row in part.batch.to_pylist()], _originals(parts)


def _originals(parts: Sequence[Conformed]) -> dict[tuple[str, str], str | None]:
    return {(held.key, held.column): held.original for part in parts for held in part.quarantined}


def spec_of(read: TableRead, snapshot: Snapshot, location: str = "") -> StageSpec:
    given = snapshot.query_types(read)
    columns = tuple(
        StageColumn(c.column.name, c.column.type, given[c.column.name], c.column.name, key=c.column.key)
        for c in read.columns
    )
    schema = pa.schema([pa.field(c.name, _arrow(c.type)) for c in columns])
    return StageSpec(read.table.path, columns, SystemColumns(), schema, location, "", "run", 0)


def _arrow(kind: DataType) -> pa.DataType:
    match kind:
        case Boolean():
            return pa.bool_()
        case Int(bits):
            return pa.int64() if bits == 64 else pa.int32()
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Float(bits):
            return pa.float64() if bits == 64 else pa.float32()
        case Binary():
            return pa.binary()
        case Date():
            return pa.date32()
        case Timestamp():
            return pa.timestamp("us")
        case TimestampTz():
            return pa.timestamp("us", "UTC")
    return pa.string()
