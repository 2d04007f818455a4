"""Builders for staging tests: specs of small tables, batches, and readers over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from instep.schema.catalog.types import (
    Array,
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Float,
    Int,
    Json,
    String,
    Struct,
    Time,
    Timestamp,
    TimestampTz,
    Uuid,
    parse,
)
from instep.stage.spec import Chunk, StageColumn, StageSpec, SystemColumns

UTC = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")
SYSTEM = SystemColumns("_synced", "_deleted", "", "_meta")
NO_SYSTEM = SystemColumns()
KEYLESS = SystemColumns("_synced", "", "_id", "_meta")


def arrow(kind: DataType) -> pa.DataType:
    """The Arrow type that an Iceberg table has for a data type."""
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
            return pa.large_binary()
        case Date():
            return pa.date32()
        case Timestamp():
            return LOCAL
        case TimestampTz():
            return UTC
        case Uuid():
            return pa.uuid()
        case Array(element):
            return pa.large_list(pa.field("element", arrow(element)))
        case Struct(fields):
            return pa.struct([pa.field(f.name, arrow(f.type)) for f in fields])
        case String() | Json() | Time():
            return pa.large_string()
    raise AssertionError(kind)


def column(name: str, kind: str, source: str | None = "", **more: Any) -> StageColumn:
    """A column accepted as `kind`, read as `source` ("": the same; None: not read)."""
    accepted = parse(kind)
    read = accepted if source == "" else None if source is None else parse(source)
    return StageColumn(name, accepted, read, more.pop("path", name), **more)


def with_ids(fields: Sequence[pa.Field], start: int = 1) -> list[pa.Field]:
    return [f.with_metadata({"PARQUET:field_id": str(start + at)}) for at, f in enumerate(fields)]


def spec_of(
    columns: Sequence[StageColumn],
    folder: Path | str = "/nowhere",
    system: SystemColumns = NO_SYSTEM,
    **more: Any,
) -> StageSpec:
    """A spec whose schema is what the columns need, with field ids from 1."""
    fields = [pa.field(c.name, arrow(c.type), nullable=not c.key) for c in columns]
    kinds = {
        system.synced: UTC,
        system.deleted: pa.bool_(),
        system.id: pa.large_string(),
        system.meta: pa.large_string(),
    }
    fields += [pa.field(name, kind) for name, kind in kinds.items() if name]
    table = more.pop("table", "public.things")
    schema = more.pop("schema", pa.schema(with_ids(fields)))
    return StageSpec(
        table, tuple(columns), system, schema, f"{folder}/data", f"{folder}/held", more.pop("run", "run-1"), 0, **more
    )


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({n: v if isinstance(v, pa.Array) else pa.array(v) for n, v in columns.items()})


def rows_of(paths: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of Parquet files, in order."""
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


@dataclass(frozen=True)
class Broken:
    """In a chunk's batches: the read fails here with `error`, the first `times` times."""

    error: Exception
    times: int = 99


@dataclass
class MemoryReader:
    """Batches by query. `log` tells what was opened, read and closed."""

    chunks: Mapping[str, Sequence[Any]]
    log: list[str] = field(default_factory=list)
    refuse: Exception | None = None
    failed: int = 0

    @contextmanager
    def open(self) -> Iterator[MemoryReader]:
        self.log.append("open")
        if self.refuse is not None:
            raise self.refuse
        yield self
        self.log.append("close")

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        self.log.append(chunk.query)
        for item in self.chunks[chunk.query]:
            if isinstance(item, Broken):
                if self.failed < item.times:
                    self.failed += 1
                    raise item.error
                continue
            yield item
