# ruff: noqa: S608 - names are ours
"""DuckDB as the place where rows of any destination and staged files meet: columns are c0, c1, ..., of plain types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from instep.errors import StageError
from instep.stage.casts.text import plain
from instep.stage.duckdb_memory import in_duckdb
from instep.stage.files.names import stored_name
from instep.stage.files.place import StorageFolder
from instep.stage.spec import StagedFile, StageSpec

if TYPE_CHECKING:
    import duckdb


BATCH = 100_000
MOMENT = pa.timestamp("us", "UTC")


@contextmanager
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection with temporary tables of its own. All share one engine and its memory, so that tables need
    not wait for one another."""
    with in_duckdb(wrong=_incomparable) as db:
        yield db


def _incomparable(name: str) -> StageError:
    return StageError(f"versions of rows could not be compared: {name}", hint="nothing was changed")


def tabled(
    db: duckdb.DuckDBPyConnection,
    table: str,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    *,
    are_numbered: bool = False,
) -> None:
    """Make a table of these rows; `n` numbers them as they came, unless they bring numbers."""

    def counted() -> Iterator[pa.RecordBatch]:
        start = 0
        for batch in batches:
            yield with_column(batch, "n", pa.array(range(start, start + len(batch)), pa.int64()))
            start += len(batch)

    rows = batches if are_numbered else counted()
    db.register("coming", pa.RecordBatchReader.from_batches(schema.append(pa.field("n", pa.int64())), rows))
    db.execute(f"CREATE TEMP TABLE {table} AS SELECT * FROM coming").fetchall()
    db.unregister("coming")


def with_column(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, values], names=[*batch.schema.names, name])


def staged_rows(files: Sequence[StagedFile], spec: StageSpec, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of staged files in the order in which they were read, as c0, c1, ..."""
    fields = [spec.schema.field(n) for n in names]
    kinds = [plain_type(f.type) for f in fields]
    labels = [f"c{i}" for i in range(len(fields))]
    for file in sorted((f for f in files if f.rows), key=lambda f: (f.chunk, f.path)):
        folder, _, name = file.path.rpartition("/")
        filesystem, path = StorageFolder(folder, spec.io).resolve(name)
        with filesystem.open_input_file(path) as source:
            stored = [stored_name(f) for f in fields]
            for batch in pq.ParquetFile(source).iter_batches(BATCH, columns=stored):
                by_name = {n: batch.column(i) for i, n in enumerate(batch.schema.names)}
                columns = [as_plain(by_name[n], k) for n, k in zip(stored, kinds, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, names=labels)


def numbered(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f"c{i}", plain_type(f.type)) for i, f in enumerate(schema)])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type without extension types and field ids of nested fields."""
    return plain(pa.nulls(0, kind)).type


def as_plain(values: pa.Array, kind: pa.DataType) -> pa.Array:
    values = plain(values)
    return values if values.type == kind else values.cast(kind)


def as_stored(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values as the destination's own type, extension types included."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, as_stored(values, kind.storage_type))
    return values if values.type == kind else values.cast(kind)


def moments(values: pa.Array) -> pa.Array:
    """Return microseconds since 1970 UTC."""
    return values.cast(MOMENT).cast(pa.int64())
