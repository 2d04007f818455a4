"""Parquet files: their footers say what is in them, and their row groups are read one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from instep.schema.catalog.types import (
    MAX_PRECISION,
    Array,
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Field,
    Float,
    Int,
    Json,
    String,
    Struct,
    Time,
    Timestamp,
    TimestampTz,
    Unknown,
    Uuid,
)
from instep.sources.files.shape import FileColumn, FilePart, FileShape, Piece, distinct

BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
types = pa.types


def inspect(file: Any, reserved: Sequence[str]) -> FileShape:
    """Inspect a file by its footer only. `file` is a random-access file."""
    parquet = pq.ParquetFile(file)
    schema, footer = parquet.schema_arrow, parquet.metadata
    names = distinct(schema.names, reserved)
    columns = [FileColumn(name, *_typed(field.type, note)) for field, (name, note) in zip(schema, names, strict=True)]
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    parts, line = [], 0
    for at, group in enumerate(groups):
        parts.append(FilePart(at, at + 1, line, group.num_rows, group.total_byte_size))
        line += group.num_rows
    return FileShape(tuple(columns), footer.num_rows, parts=tuple(parts))


def _batch_rows(footer: pq.FileMetaData, groups: range) -> int:
    """Return how many rows a batch has, so that it is no more than some megabytes, but for a single row."""
    parts = [footer.row_group(at) for at in groups]
    rows, size = sum(int(p.num_rows) for p in parts), sum(int(p.total_byte_size) for p in parts)
    return max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(size, 1)))


def pieces(file: Any, shape: FileShape, part: FilePart | None, columns: Sequence[str]) -> Iterator[Piece]:
    """Yield the rows of the part's row groups (None: all); columns that the file lacks are left out."""
    parquet = pq.ParquetFile(file)
    groups = range(parquet.metadata.num_row_groups) if part is None else range(part.start, part.end)
    chosen = frozenset(columns)
    places = [at for at, column in enumerate(shape.columns) if column.name in chosen]
    line = 1 + (part.line if part else 0)
    names = parquet.schema_arrow.names
    roots = [names[at] for at in places]
    single = len(set(names)) == len(names)
    for batch in parquet.iter_batches(
        _batch_rows(parquet.metadata, groups), row_groups=list(groups), columns=roots if single else None
    ):
        positions = {name: place for place, name in enumerate(batch.schema.names)}
        in_batch = [positions[name] for name in roots] if single else places
        arrays = {shape.columns[at].name: batch.column(place) for at, place in zip(places, in_batch, strict=True)}
        yield Piece(arrays, pa.array(range(line, line + len(batch)), pa.int64()))
        line += len(batch)


def _typed(kind: pa.DataType, name: str) -> tuple[DataType, str, str]:
    """Return (the type, the file's own name of it, a note)."""
    column_type = data_type(kind)
    note = f"{kind} is kept as {column_type}" if _is_looser(kind, column_type) else ""
    return column_type, str(kind), "; ".join(filter(None, (name, note)))


def _is_looser(kind: pa.DataType, column_type: DataType) -> bool:
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return isinstance(column_type, String | Json) and not text and not types.is_dictionary(kind)


def data_type(kind: pa.DataType) -> DataType:
    """Return the type that holds every value of an Arrow type."""
    if isinstance(kind, pa.UuidType):
        return Uuid()
    if isinstance(kind, pa.BaseExtensionType):
        return Json() if kind.extension_name == "arrow.json" else data_type(kind.storage_type)
    if types.is_dictionary(kind):
        return data_type(kind.value_type)
    if types.is_integer(kind):
        if types.is_signed_integer(kind):
            return Int(kind.bit_width)
        return Decimal(20, 0) if kind.bit_width == 64 else Int(2 * kind.bit_width)
    if types.is_decimal(kind):
        fits = 0 <= kind.scale <= kind.precision <= MAX_PRECISION
        return Decimal(kind.precision, kind.scale) if fits else String()
    if types.is_timestamp(kind):
        return TimestampTz() if kind.tz else Timestamp()
    if types.is_list(kind) or types.is_large_list(kind):
        return Array(data_type(kind.value_type))
    if types.is_struct(kind):
        return Struct(tuple(Field(f.name, data_type(f.type)) for f in kind))
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return Binary()
    return next((result for test, result in _SIMPLE if test(kind)), Json() if types.is_nested(kind) else String())


_SIMPLE: tuple[tuple[Any, DataType], ...] = (
    (types.is_null, Unknown()),
    (types.is_boolean, Boolean()),
    (types.is_float64, Float(64)),
    (types.is_floating, Float(32)),
    (types.is_date, Date()),
    (types.is_time, Time()),
)
