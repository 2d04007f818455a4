"""The upsert of a table that fits: its delta found here, its rows written here, one fenced commit, no Spark job.

A MERGE of the same rows takes the JVM seconds, most of them for shuffles that a table of this size does not need.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable

from instep.destinations.base import LoadOutcome, Merge
from instep.destinations.iceberg.commit.position_deletes import Deletes, delete_rows
from instep.destinations.iceberg.commit.row_reader import Positions, RowReader, current_rows, staged_rows, take
from instep.destinations.iceberg.commit.shard_table import own_data, staged_schema
from instep.destinations.iceberg.metadata.files import arrow_schema, data_files, readable_files
from instep.destinations.iceberg.metadata.partition import partitioning
from instep.destinations.iceberg.metadata.records import current_fields
from instep.destinations.iceberg.metadata.shards import totals, within_of
from instep.destinations.iceberg.write.upsert_diff import Delta, find_delta, find_since
from instep.errors import Conflict
from instep.spark.merge import MergePlan
from instep.stage.partition import by_partition
from instep.stage.spec import StagedFile

ROWS = 5_000_000
BYTES = 512 << 20
_KEYS = ("boolean", "int", "long", "date", "timestamp", "timestamptz", "string", "uuid", "binary")


def fits(
    metadata: Mapping[str, Any], files: Sequence[StagedFile], how: Merge, limit: int = ROWS, size: int = BYTES
) -> bool:
    """Return whether table and staged files are small enough, and key or cursor of a type that compares in Spark as
    here."""
    kinds = {f.name: f.type for f in current_fields(metadata)}
    used = how.key if how.since is None else [how.since[0]]
    if not all(str(kinds[k]).startswith((*_KEYS, "decimal", "fixed")) for k in used):
        return False
    there, coming = totals(metadata), [*files, *how.keys, *how.requested]
    known = 0 if within_of(metadata["properties"]) else ROWS + 1
    rows = there.get("records", known) + sum(f.rows for f in coming)
    return rows <= limit and there.get("files-size", 0) + sum(f.bytes for f in coming) <= size


@dataclass(frozen=True)
class Upsert:
    """Upsert of `plan` on the current snapshot of `table`."""

    table: IcebergTable
    plan: MergePlan
    staged: RowReader
    rows: RowReader
    delta: Delta

    @property
    def outcome(self) -> LoadOutcome:
        d = self.delta
        return LoadOutcome(len(d.inserted), len(d.updated), len(d.marked) + len(d.removed), d.absent, d.returned)

    @property
    def rows_after(self) -> int:
        return self.delta.rows + len(self.delta.inserted) - len(self.delta.removed)


def find_upsert(table: IcebergTable, files: Sequence[StagedFile], how: Merge, plan: MergePlan) -> Upsert | None:
    """Return the upsert; None where only Spark can find it: DuckDB lacks the memory or the type, or the table has other
    deletes or twins."""
    metadata, schema = table.metadata, table.schema()
    ordered = sorted(files, key=lambda f: (f.chunk, f.path))
    own = staged_schema(table) or schema
    staged = staged_rows(table, readable_files(ordered, metadata, own))
    known = how.keys or how.requested
    keys = staged_rows(table, readable_files(known, metadata, own.select(*how.key))) if known else None
    with suppress(duckdb.Error, pa.ArrowException):
        rows = current_rows(table)
        delta = _find(plan, staged, keys, rows) if rows else None
        return Upsert(table, plan, staged, rows, delta) if rows and delta is not None else None
    return None


def _find(plan: MergePlan, staged: RowReader, keys: RowReader | None, table: RowReader) -> Delta | None:
    return find_delta(plan, staged, keys, table) if plan.since is None else find_since(plan.since, staged, table)


@contextmanager
def written(upsert: Upsert, fence: int) -> Iterator[tuple[list[DataFile], Deletes]]:
    """The files of the delta; they are taken away again if the commit is refused."""
    with row_delta(upsert.rows, new_rows(upsert), _left(upsert.delta), fence) as made:
        yield made


@contextmanager
def row_delta(rows: RowReader, new: pa.Table, gone: Positions, fence: int) -> Iterator[tuple[list[DataFile], Deletes]]:
    """Data files with the `new` rows, and delete files for those at the places `gone`."""
    made: list[DataFile] = []
    name = f"{own_data(rows.table)}/upsert-{fence}-{uuid.uuid4().hex[:12]}"
    try:
        data = _write(rows.table, new, name)
        made += data
        deletes = list(delete_rows(rows, gone, name))
        made += [file for file, _ in deletes]
        replaced = [old for _, files in deletes for old in files]
        yield data, Deletes([file for file, _ in deletes], replaced)
    except Conflict:
        for file in made:
            with suppress(OSError):
                rows.table.io.delete(file.file_path)
        raise


def _left(delta: Delta) -> Positions:
    """The rows of the table that are deleted, or stand again among the new ones."""
    return np.concatenate([delta.updated[:, 2:], delta.marked, delta.removed])


def new_rows(upsert: Upsert) -> pa.Table:
    """Inserted rows as they came, updated ones with the values that were not read, rows that left."""
    plan, delta, target = upsert.plan, upsert.delta, arrow_schema(upsert.table.schema())
    parts = [take(upsert.staged, delta.inserted, target), _updated(upsert, target)]
    if len(delta.marked):
        rows = take(upsert.rows, delta.marked, target)
        parts.append(_all(_all(rows, plan.deleted, True), plan.synced, plan.at))
    return pa.concat_tables(parts)


def _updated(upsert: Upsert, target: pa.Schema) -> pa.Table:
    plan, places = upsert.plan, upsert.delta.updated
    rows = take(upsert.staged, places[:, :2], target)
    unchanged = [c for c in plan.inserted if c not in {*plan.key, *plan.values, *plan.stamps}]
    if not unchanged or not len(places):
        return rows
    order = np.lexsort((places[:, 3], places[:, 2]))
    old = take(upsert.rows, places[order, 2:], pa.schema([target.field(c) for c in unchanged]))
    old = old.take(pa.array(np.argsort(order)))
    for column in unchanged:
        rows = rows.set_column(target.get_field_index(column), target.field(column), old.column(column))
    return rows


def _all(rows: pa.Table, column: str, value: bool | int) -> pa.Table:
    """Return the rows with one value in a column, if there is one of that name."""
    if not column:
        return rows
    place, field = rows.schema.get_field_index(column), rows.schema.field(column)
    return rows.set_column(place, field, pa.repeat(pa.scalar(value, field.type), len(rows)))


def _write(table: IcebergTable, rows: pa.Table, stem: str) -> list[DataFile]:
    """Return a file, or one a partition; their names begin with `stem`. Those of a failure are nobody's, and are
    removed."""
    by = partitioning(table.metadata)
    if by is None:
        return data_files([_file(table, rows, f"{stem}.parquet")] if len(rows) else [], table.metadata)
    parts = enumerate(by_partition(rows, by))
    files = [replace(_file(table, part, f"{stem}-{n}.parquet"), partition=place) for n, (place, part) in parts]
    return data_files(files, table.metadata)


def _file(table: IcebergTable, rows: pa.Table, path: str) -> StagedFile:
    footers: list[Any] = []
    output, sink = table.io.new_output(path), pa.BufferOutputStream()
    with (
        output.create() as stream,
        pq.ParquetWriter(stream, rows.schema, compression="zstd", metadata_collector=footers) as writer,
    ):
        writer.write_table(rows)
    footers[0].write_metadata_file(sink)
    size = len(table.io.new_input(path))
    return StagedFile("", 0, path, len(rows), size, bytes(sink.getvalue()))
